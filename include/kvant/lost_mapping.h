// Tells a program which mapped file it was that can no longer be read.
//
// A file that is made shorter while it is mapped (base/mapped_file.h) has lost pages: touching them
// raises SIGBUS, which ends the process. There is no way back, but a handler for SIGBUS can ask
// MappedFileAt for the address of the fault (si_addr), tell its user and end the process, as the
// program does (tools/terminal/lost_file.cpp). Files that were read instead of mapped have no such
// risk.
#pragma once

namespace kvant {

// The path, as Open got it, of the mapped file whose bytes lie at this address, or null. Only files
// that are mapped (FileAccess::kMap) and still open count. May be called in a signal handler, by
// any thread; the text is valid as long as the file stays mapped.
const char* MappedFileAt(const void* address);

}  // namespace kvant
