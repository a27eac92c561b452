/// Gives SIGINT and SIGTERM back their default action.
///
/// Debian's libfabric brings PSM, whose start-up code installs handlers for these and others before `main`: Ctrl-C then
/// exits with 1 and says nothing, and whoever installs a handler that calls the one before it gets that too. A program calls
/// this at its start, before it installs handlers of its own. One that was started with the signals ignored loses that, as
/// PSM has already overwritten it.
pub fn default_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: SIG_DFL is a valid disposition for both signals, and replacing a handler touches no memory of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
