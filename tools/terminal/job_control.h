// Gives the terminal the settings of the shell while the program is stopped (Ctrl+Z), and the
// settings of the program when it goes on.
//
// There is one terminal, whose settings handlers of SIGTSTP and SIGCONT change. A program that was
// started with SIGTSTP ignored, by a shell without job control, keeps ignoring it.
#pragma once

#include <termios.h>

namespace kvant::tools {

// From here on. `outside` are the settings that the terminal had before.
void FollowStops(int terminal, const termios& outside);
void EndFollowingStops();

// Gives the terminal these settings, now and whenever the program goes on after a stop.
void SetTerminal(const termios& inside);

// Stops the program and what runs beside it, as Ctrl+Z on a terminal does. Returns when it goes on.
void StopByUser();

// Whether the program has gone on after a stop since the last call.
bool TakeGoneOn();

}  // namespace kvant::tools
