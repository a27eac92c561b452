use std::num::NonZeroU32;

use super::cost::{Cost, Seen};
use crate::{Finished, Tick};

/// Most of the work left that may be done at a level that may be wrong.
const RISK_MAX: f64 = 0.06;
/// Steps without which nothing is said of a level.
const STEPS_MIN: u32 = 6;
/// A level that has not that many after this share of the time left is given up.
const PATIENCE: f64 = 0.03;
/// How much faster more must be to be kept: twice the noise of what is compared.
const FASTER: f64 = 1.05;
/// How much slower less may be to be kept: it costs less besides.
const AS_GOOD: f64 = 0.98;

/// The search for one kind of work.
#[derive(Debug)]
pub(super) struct Search {
    level: u32,
    /// When it began; only steps that began since are counted.
    since: Tick,
    seen: Seen,
    /// No level is higher.
    most: u32,
    steps_left: u64,
    bytes_left: u64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// At a level that is good as far as we know, until another one can be tried cheaply.
    Hold { next: Try },
    /// At another level, to see.
    Probe { what: Try, good: u32, seen_there: Seen, give_up: Tick },
    /// Something ran out, and the level doubles up to the one below that.
    Recover,
    /// Nothing more is tried.
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    Half,
    More,
}

impl Search {
    pub(super) fn new(level: u32, most: u32, steps: u64, bytes: u64) -> Search {
        let phase = Phase::Hold { next: if level > 1 { Try::Half } else { Try::More } };
        Search { level, since: Tick(0), seen: Seen::default(), most, steps_left: steps, bytes_left: bytes, phase }
    }

    pub(super) fn level(&self) -> NonZeroU32 {
        NonZeroU32::new(self.level).unwrap_or(NonZeroU32::MIN)
    }

    /// True once all steps have ended.
    pub(super) fn is_done(&self) -> bool {
        self.steps_left == 0
    }

    /// Takes notice of a step; why, if the level changes. `alone` is false while other work disturbs what is measured.
    pub(super) fn finished(&mut self, now: Tick, step: &Finished, alone: bool) -> Option<&'static str> {
        self.steps_left = self.steps_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(step.bytes);
        if step.started < self.since {
            return self.give_up(now);
        }
        if step.exhausted {
            return self.ran_out(now);
        }
        if !step.ok {
            return None;
        }
        if !alone && !matches!(self.phase, Phase::Recover) {
            // Measured anew once it is alone.
            self.seen = Seen::default();
            return None;
        }
        self.seen.add(step.bytes, now.0.saturating_sub(step.started.0), step.in_flight);
        match self.phase {
            Phase::Hold { next } => self.hold(now, next),
            Phase::Probe { .. } => self.probe(now),
            Phase::Recover => self.recover(now),
            Phase::Settled => None,
        }
    }

    /// Tries the next level, if that costs little.
    fn hold(&mut self, now: Tick, next: Try) -> Option<&'static str> {
        if self.seen.count < steps_to_judge(self.level) {
            return None;
        }
        let level = self.to_try(next);
        if level == self.level {
            self.phase = Phase::Settled;
            return None;
        }
        let cost = Cost::fit(&self.seen);
        let (left, rate) = (cost.of_all(self.steps_left, self.bytes_left), self.seen.throughput(cost, self.level));
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let each = self.seen.work(cost).max(left / self.steps_left.max(1) as f64);
        let risk = f64::from(steps_to_judge(level)) * each;
        // Those in flight must end before there is room to begin at a lower level, and those that begin must end.
        let wait = 2.0 * f64::from(self.level) * each;
        // Not written the other way round: what is not a number is no reason to try.
        let is_cheap = risk <= RISK_MAX * left && wait <= PATIENCE * left && rate > 0.0;
        if !is_cheap {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is positive")]
        let patience_ns = (PATIENCE * left / rate) as u64;
        let (good, give_up) = (self.level, Tick(now.0.saturating_add(patience_ns)));
        let seen_there = self.move_to(level, now);
        self.phase = Phase::Probe { what: next, good, seen_there, give_up };
        Some(match next {
            Try::Half => "half, to see",
            Try::More => "half as many again, to see",
        })
    }

    /// Judges the level that is tried.
    fn probe(&mut self, now: Tick) -> Option<&'static str> {
        let Phase::Probe { what, good, ref seen_there, .. } = self.phase else { return None };
        if self.seen.count < STEPS_MIN {
            return self.give_up(now);
        }
        if self.seen.count < steps_to_judge(self.level) {
            return None;
        }
        let cost = Cost::fit(seen_there);
        let ratio = self.seen.throughput(cost, self.level) / seen_there.throughput(cost, good);
        let is_better = ratio >= if what == Try::Half { AS_GOOD } else { FASTER };
        self.phase = after(what, is_better);
        if is_better {
            // The level stays, and so does what was seen at it.
            return Some(if what == Try::Half { "kept: half is as fast" } else { "kept: more is faster" });
        }
        self.move_to(good, now);
        Some(if what == Try::Half { "back: half is slower" } else { "back: more is no faster" })
    }

    /// Goes back where a level has had its time and shown too little.
    fn give_up(&mut self, now: Tick) -> Option<&'static str> {
        let Phase::Probe { what, good, give_up, .. } = self.phase else { return None };
        if self.seen.count >= STEPS_MIN || now <= give_up {
            return None;
        }
        self.move_to(good, now);
        self.phase = after(what, false);
        Some("given up: too few steps to judge by")
    }

    /// One alone, and then twice as many each time, but never again as many as had been too many.
    fn ran_out(&mut self, now: Tick) -> Option<&'static str> {
        self.most = self.most.min(self.level - 1).max(1);
        self.phase = Phase::Recover;
        if self.level == 1 {
            return None;
        }
        self.move_to(1, now);
        Some("something ran out: one alone")
    }

    fn recover(&mut self, now: Tick) -> Option<&'static str> {
        if self.level >= self.most {
            self.phase = Phase::Settled;
        } else if self.seen.count >= self.level {
            self.move_to((self.level * 2).min(self.most), now);
            return Some("twice as many, below what ran out");
        }
        None
    }

    fn to_try(&self, what: Try) -> u32 {
        match what {
            Try::Half => (self.level / 2).max(1),
            Try::More => self.level.saturating_add(self.level.div_ceil(2)).min(self.most),
        }
    }

    /// Changes the level; what was seen at the last one.
    fn move_to(&mut self, level: u32, now: Tick) -> Seen {
        // A step that begins at this very moment may have been handed out before.
        self.since = Tick(now.0.saturating_add(1));
        self.level = level;
        std::mem::take(&mut self.seen)
    }
}

/// Once around, so that the level is filled, and a few.
fn steps_to_judge(level: u32) -> u32 {
    level.max(STEPS_MIN)
}

/// What is tried after a try: half once, then more while it helps.
fn after(what: Try, is_better: bool) -> Phase {
    if what == Try::Half || is_better { Phase::Hold { next: Try::More } } else { Phase::Settled }
}
