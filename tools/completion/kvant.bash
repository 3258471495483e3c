# Completion of kvant for bash. The words come from the program itself, so they are always those of
# the installed version. Installed as share/bash-completion/completions/kvant; to try it:
#   source tools/completion/kvant.bash

_kvant() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
  local before=${COMP_WORDS[COMP_CWORD - 1]} words
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words="$("$program" --list-commands 2>/dev/null) --help --version"
  elif [[ $word == -* ]]; then
    words=$("$program" "$command" --list-options 2>/dev/null)
  elif [[ $before == -* ]]; then
    words=$("$program" "$command" --list-values "$before" 2>/dev/null)
  else
    # An argument: the name of a model, or a file.
    words=$("$program" "$command" --list-values "" 2>/dev/null)
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"; compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
    return
  fi
  # Without words there are file names, by the default of `complete` below.
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o default -F _kvant kvant
