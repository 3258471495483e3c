// The end of the program where a file that it has mapped can no longer be read: somebody made it
// shorter (a download that begins again, `cp` onto it), or its disk fails.
//
// The kernel tells that by SIGBUS in the middle of the arithmetic, so there is no way back; but
// there is time for one line that names the file, and for exit code 1. Output files are not
// touched: they get their names only when they are complete.
#pragma once

namespace kvant::tools {

// From here on. Before threads are started.
void EndAtLostFiles();

}  // namespace kvant::tools
