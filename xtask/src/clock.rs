//! The one room with a clock: how long something took is told to its user.

use std::time::{Duration, Instant};

#[allow(clippy::disallowed_methods, reason = "the time is shown, and sizes the bench; no library is called with it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn shown(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds < 60 { format!("{:.1} s", took.as_secs_f64()) } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_for_people() {
        assert_eq!(shown(Duration::from_millis(2340)), "2.3 s");
        assert_eq!(shown(Duration::from_secs(754)), "12 min 34 s");
    }
}
