//! What an error says.

use pinrail_core::{Access, Chunk, Source, errno_name};

use super::{on_each_rail, told};
use crate::Fixture;
use crate::suite::{Outcome, Tried};

pub(crate) fn api_and_errno(fixture: &dyn Fixture) -> Tried {
    let registrar = fixture.registrar();
    let memories: Vec<_> = fixture.unmapped().map(|(memory, _)| memory).into_iter().chain(fixture.read_only()).collect();
    if memories.is_empty() {
        return Ok(Outcome::Skip("no such memory"));
    }
    on_each_rail(&*registrar, |rail| {
        let mut failures = 0;
        for memory in &memories {
            let chunk = Chunk { memory, range: 0..memory.len(), access: Access::FULL, source: &Source::Address };
            let error = match registrar.register(rail, &chunk) {
                Ok(mut mr) => {
                    super::deregister(&*registrar, &mut mr)?;
                    continue;
                }
                Err(error) => error,
            };
            let (text, diagnosis) = (error.to_string(), error.diagnosis());
            let named = error.errno.is_some_and(|errno| {
                text.contains(errno_name(errno)) && text.contains(&errno.to_string()) && diagnosis.errno == Some(errno)
            });
            if error.api.is_empty() || !text.contains(error.api) || !named {
                return Err(format!("the failed call's API and errno were expected: {}", told(&diagnosis)));
            }
            failures += 1;
        }
        Ok(if failures == 0 { Outcome::Skip("nothing fails") } else { Outcome::Pass })
    })
}
