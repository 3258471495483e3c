// The commands of the program: one function each, in the file of its name. A function parses its
// own options, does the work and returns the exit code. tools/main.cpp has the table.
#pragma once

#include "tools/options/command_line.h"

namespace kvant::tools {

int RunCommand(CommandLine& line);
int ChatCommand(CommandLine& line);
int ServeCommand(CommandLine& line);
int TranscribeCommand(CommandLine& line);
int EmbedCommand(CommandLine& line);
int RerankCommand(CommandLine& line);
int InspectCommand(CommandLine& line);
int TokenizeCommand(CommandLine& line);
int TemplateCommand(CommandLine& line);
int LogitsCommand(CommandLine& line);
int BenchCommand(CommandLine& line);
int HashCommand(CommandLine& line);
int PerplexityCommand(CommandLine& line);
int ScoreCommand(CommandLine& line);
int SeqCommand(CommandLine& line);
int ImatrixCommand(CommandLine& line);
int ConvertCommand(CommandLine& line);
int QuantizeCommand(CommandLine& line);
int SplitCommand(CommandLine& line);
int MergeCommand(CommandLine& line);

}  // namespace kvant::tools
