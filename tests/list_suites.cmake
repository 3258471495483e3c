# Read by ctest when it starts, with the test program in `program`: one ctest entry for each test
# suite. A process per suite instead of one per test, because start-up (dynamic linking, sanitizer
# tables) costs more than most tests. A program that does not start is an entry that fails.
execute_process(COMMAND ${program} --gtest_list_tests
  OUTPUT_VARIABLE listing ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  add_test(kvant_tests_starts ${program} --gtest_list_tests)
endif()

# The same tests with attention on an emulated device: some kinds of each.
foreach(entry
    "Runner=*RunnerKinds*/mixed_q8_window_33:*Runner*/mixed_f16_window_7:-*RunnerKinds*/mixed_f16_window_7"
    "Beams=BeamGenerator*:*BeamEdges*:*Draft*/*f16*"
    "Latents=*RunnerKinds*/latent_f16:*RunnerKinds*/latent_q8:*Beam*/latent_f16:*Draft*/latent_q8:LatentCache*:*LatentBits*"
    "Recurrent=*Recurrent*/qwen35_four:*State*/qwen35_four:*Recurrent*/falcon_h1"
    "Sessions=*/SessionFile*:Preemption*:PrefixCache*:Scheduler*:Shakespeare*:Gemma3*:KvTensors*")
  string(REGEX MATCH "^[^=]+" name ${entry})
  string(REGEX REPLACE "^[^=]+=" "" filter ${entry})
  add_test(OnDevice/${name} ${program} --gtest_filter=${filter} --gtest_brief=1)
  set_tests_properties(OnDevice/${name} PROPERTIES TIMEOUT 1800 ENVIRONMENT "KVANT_TEST_OFFLOAD=emulated")
endforeach()

# "Suite." or "Suite/0.  # TypeParam = float" opens a suite; its tests follow indented.
string(REPLACE "\n" ";" lines "${listing}")
foreach(line ${lines})
  if(line MATCHES "^([^ ]+)\\.( |$)")
    set(suite ${CMAKE_MATCH_1})
    add_test(${suite} ${program} --gtest_filter=${suite}.* --gtest_brief=1)
    set_tests_properties(${suite} PROPERTIES TIMEOUT 600)
    # What takes longest, some of it with sanitizers only, begins first, so that no core waits for it
    # in the end.
    if(suite MATCHES "^(Listed/Families|Kinds/(RunnerKinds|HostileSessionFile)|Seeded/Recurrent|BartG2p|BenchTest|QuantizeSize|Isa/(Attention|AttentionRows|MatMul(Values|Invariance)Test))$")
      set_tests_properties(${suite} PROPERTIES COST 100)
    endif()
  endif()
endforeach()
