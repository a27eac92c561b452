//! Policies whose answers a checker overhears, and some that answer nonsense.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use pinrail_core::{Kind, Limits};
use pinrail_policy::{ChunkInfo, Concurrency, Control, Controller, ControllerReport, Finished, Order, RunShape, Tick};

use super::rng::Rng;
use super::stage::Stage;

/// What a policy does with the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limiting {
    Fixed(Limits),
    /// Others after each step, now and then a panic instead.
    Erratic {
        panics: u32,
    },
    /// A panic at once, so many times of a thousand.
    Broken(u32),
}

pub(crate) struct Overheard {
    pub(crate) limiting: Limiting,
    pub(crate) stage: Stage,
    pub(crate) rng: Mutex<Rng>,
}

pub(crate) fn any_limits(rng: &mut Rng) -> Limits {
    let mut any = |max| match rng.below(4) {
        0 => u32::MAX,
        _ => u32::try_from(rng.within(1..=max)).unwrap_or(u32::MAX),
    };
    let mut n = |max| std::num::NonZeroU32::new(any(max)).unwrap_or(std::num::NonZeroU32::MIN);
    Limits { total: n(8), prepare: n(4), register: n(6), deregister: n(6), per_rail: n(3) }
}

impl Concurrency for Overheard {
    fn begin(&self, run: &RunShape) -> Control {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.stage.rules();
        match self.limiting {
            Limiting::Fixed(limits) => {
                rules.began(run.tasks_do, limits);
                Control::Fixed(limits)
            }
            Limiting::Erratic { panics } => {
                let said = rules.began(run.tasks_do, Limits::NONE);
                Control::Adaptive(Box::new(Erratic { rng: Mutex::new(rng.split()), panics, said }))
            }
            Limiting::Broken(panics) => {
                rules.began(run.tasks_do, Limits::NONE);
                if rng.chance(panics) {
                    drop(rng);
                    resume_unwind(Box::new("a planted panic"));
                }
                Control::Fixed(Limits::NONE)
            }
        }
    }

    fn spec(&self) -> String {
        "overheard".to_owned()
    }
}

struct Erratic {
    rng: Mutex<Rng>,
    panics: u32,
    said: Arc<Mutex<Limits>>,
}

impl Erratic {
    fn answer(&self) -> Limits {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        if rng.chance(self.panics) {
            drop(rng);
            resume_unwind(Box::new("a planted panic"));
        }
        let limits = any_limits(&mut rng);
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        limits
    }
}

impl Controller for Erratic {
    fn limits(&self) -> Limits {
        self.answer()
    }

    fn finished(&mut self, _: Tick, seen: &Finished) -> Option<Limits> {
        let keeps = seen.kind == Kind::Prepare && seen.ok;
        (!keeps).then(|| self.answer())
    }

    fn report(&self) -> ControllerReport {
        let limits = *self.said.lock().unwrap_or_else(PoisonError::into_inner);
        ControllerReport { levels: vec![(Tick(0), limits, "erratic")] }
    }
}

/// `ascending`, but for equal chunks, which it turns round: a canary.
pub(crate) struct Unstable;

impl Order for Unstable {
    fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..).take(chunks.len()).collect();
        order.sort_by_key(|&at| (chunks[at as usize].len, std::cmp::Reverse(at)));
        order
    }

    fn spec(&self) -> String {
        "ascending".to_owned()
    }
}

/// Which answer an order policy gives that is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nonsense {
    Short,
    Twice,
    Beyond,
}

impl Order for Nonsense {
    fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..).take(chunks.len()).collect();
        match (self, order.last_mut()) {
            (_, None) => order.push(0),
            (Nonsense::Short, _) => drop(order.pop()),
            (Nonsense::Twice, Some(last)) => *last = last.wrapping_sub(1),
            (Nonsense::Beyond, Some(last)) => *last += 1,
        }
        order
    }

    fn spec(&self) -> String {
        "nonsense".to_owned()
    }
}
