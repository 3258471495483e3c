# Read by ctest when it starts, with the test program in `program`: one ctest entry for each test
# suite. A process per suite instead of one per test, because start-up (dynamic linking, sanitizer
# tables) costs more than most tests. A program that does not start is an entry that fails.
#
# Two environment variables choose less (docs/testing.md):
#   KVANT_TEST_SUITES=FILE   only the suites that the file names, one a line; FILE is a full path
#   KVANT_TEST_KINDS=few     of suites that repeat their tests for 18 kinds of caches six kinds
execute_process(COMMAND ${program} --gtest_list_tests
  OUTPUT_VARIABLE listing ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  add_test(kvant_tests_starts ${program} --gtest_list_tests)
endif()
set(chosen "")
if(DEFINED ENV{KVANT_TEST_SUITES})
  file(STRINGS $ENV{KVANT_TEST_SUITES} chosen)
  if(NOT chosen)
    set(chosen none)
  endif()
endif()
# Each type with an own layer and a mixed one; no window, windows below and above a block, and
# sections; latents. No two have type and window in common.
set(few_kinds f16 f32_window_100 mixed_f32_window_1 mixed_q8_window_33 mixed_f16_sections_40 latent_q8)

# Entries that would take over a minute are cut into parts of about as many tests each: NAME/1, NAME/2.
set(parts_BartG2p 4)
set(parts_CudaAttention 4)
set(parts_Listed/Families 5)
set(parts_OnDevice/Runner 2)
set(parts_OnDevice/Latents 2)

# add_suite(NAME FILTER VARIABLE=VALUE...): the entry NAME, or those of its parts, where it is chosen.
macro(add_suite name filter)
  list(FIND chosen ${name} at)  # ctest sets no policies, so if() knows no IN_LIST
  if(NOT chosen OR at GREATER -1)
    set(parts 1)
    if(DEFINED parts_${name})
      set(parts ${parts_${name}})
    endif()
    foreach(part RANGE 1 ${parts})
      set(entry "${name}")
      set(variables ${ARGN})
      if(parts GREATER 1)
        set(entry "${name}/${part}")
        math(EXPR index "${part} - 1")
        list(APPEND variables GTEST_TOTAL_SHARDS=${parts} GTEST_SHARD_INDEX=${index})
      endif()
      add_test("${entry}" ${program} "--gtest_filter=${filter}" --gtest_brief=1)
      set_tests_properties("${entry}" PROPERTIES TIMEOUT 1800 ENVIRONMENT "${variables}")
      # What takes longest, some of it with sanitizers only, begins first, so that no core waits for it
      # in the end.
      if(${name} MATCHES "^(Listed/Families|Kinds/(RunnerKinds|HostileSessionFile)|Seeded/Recurrent|BartG2p|BenchTest|QuantizeSize|Isa/(Attention|AttentionRows|MatMul(Values|Invariance)Test))$")
        set_tests_properties("${entry}" PROPERTIES COST 100)
      endif()
    endforeach()
  endif()
endmacro()

# The same tests with attention on an emulated device: some kinds of each.
foreach(entry
    "Runner=*RunnerKinds*/mixed_q8_window_33:*Runner*/mixed_f16_window_7:-*RunnerKinds*/mixed_f16_window_7"
    "Beams=BeamGenerator*:*BeamEdges*:*Draft*/*f16*"
    "Latents=*RunnerKinds*/latent_f16:*RunnerKinds*/latent_q8:*Beam*/latent_f16:*Draft*/latent_q8:LatentCache*:*LatentBits*"
    "Recurrent=*Recurrent*/qwen35_four:*State*/qwen35_four:*Recurrent*/falcon_h1"
    "Sessions=*/SessionFile*:Preemption*:PrefixCache*:Scheduler*:Shakespeare*:Gemma3*:KvTensors*")
  string(REGEX MATCH "^[^=]+" name ${entry})
  string(REGEX REPLACE "^[^=]+=" "" filter ${entry})
  add_suite(OnDevice/${name} "${filter}" KVANT_TEST_OFFLOAD=emulated)
endforeach()

# "Suite." or "Suite/0.  # TypeParam = float" opens a suite; its tests follow indented, "  Name/f16".
string(REPLACE "\n" ";" lines "${listing}")
set(suites)
set(suites_of_kinds)
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)\\.( |$)")
    set(suite ${CMAKE_MATCH_1})
    list(APPEND suites ${suite})
  elseif(suite MATCHES "^Kinds/" AND line MATCHES "^  [^ ]+/([^ /]+)( |$)")
    list(FIND few_kinds ${CMAKE_MATCH_1} at)
    if(at GREATER -1)
      list(APPEND suites_of_kinds ${suite})
    endif()
  endif()
endforeach()
foreach(suite IN LISTS suites)
  set(filter "${suite}.*")
  list(FIND suites_of_kinds ${suite} at)
  if("x$ENV{KVANT_TEST_KINDS}" STREQUAL xfew AND at GREATER -1)
    list(TRANSFORM few_kinds PREPEND "${suite}.*/" OUTPUT_VARIABLE filter)
    list(JOIN filter ":" filter)
  endif()
  add_suite(${suite} "${filter}")
endforeach()
