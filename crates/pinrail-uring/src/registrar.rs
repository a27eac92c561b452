use std::sync::Arc;

use pinrail_core::{
    Cause, Chunk, DeregisterError, Identity, Keys, MoveBytes, Mr, Rail, RailId, RegisterError, Registrar, Source,
};

use crate::cause;
use crate::uring::{Token, Uring};

/// The call behind both operations.
const API: &str = "io_uring_register(BUFFERS_UPDATE)";

impl Registrar for Uring {
    fn identity(&self) -> Identity {
        Identity { backend: "uring".into(), provider: "io_uring".into(), library: format!("Linux {}", self.release) }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let (Some(ring), Some(limits)) = (self.rings.get(rail.index()), self.rails.get(rail.index()).map(|rail| rail.limits))
        else {
            return Err(RegisterError::no_such_rail(API, rail, self.rings.len()));
        };
        let refuse = |cause| RegisterError::new(API, None, cause);
        if self.is_inherited() {
            let what = "a forked child shares its parent's rings: open rings of its own there".into();
            return Err(refuse(Cause::NotSupported { what }));
        }
        let extent = chunk.check().map_err(|wrong| refuse(wrong.into()))?;
        if chunk.memory.is_imagined() {
            return Err(refuse(Cause::NotSupported { what: "imagined memory has no pages that could be pinned".into() }));
        }
        let Source::Address = chunk.source else {
            return Err(refuse(Cause::NotSupported {
                what: "io_uring pins host memory by its address and takes no dma-buf".into(),
            }));
        };
        if let Some(limit) = limits.max_mr_size.filter(|limit| extent.len() > *limit) {
            return Err(refuse(Cause::MrSize { limit, need: extent.len() }));
        }
        let slot = ring.slots.take().ok_or_else(|| refuse(Cause::MrCount { limit: ring.slots.total().into() }))?;
        if let Err(error) = ring.fill(slot, extent) {
            ring.slots.give_back(slot);
            return Err(RegisterError::new(API, error.raw_os_error(), cause::of_register(&error, extent)));
        }
        let keys = Keys { local: slot.into(), ..Keys::default() };
        Ok(Mr::new(rail, keys, Token { ring: Arc::clone(ring), slot, access: chunk.access.effective() }, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let Some(token) = self.token(mr) else { return Err(DeregisterError::new(API, None, Cause::NotOurs)) };
        let (ring, slot) = (Arc::clone(&token.ring), token.slot);
        if ring.queue().is_some_and(|queue| queue.may_touch(slot)) {
            let what = "a transfer that ran out of time may still touch the memory".into();
            return Err(DeregisterError::new(API, None, Cause::Busy { what }));
        }
        ring.clear(slot).map_err(|error| DeregisterError::new(API, error.raw_os_error(), cause::of_deregister(&error)))?;
        // The memory is let go here, after the kernel has let go of its pages.
        drop(mr.retire::<Token>());
        ring.slots.give_back(slot);
        Ok(())
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        self.rings.iter().all(|ring| ring.queue().is_some()).then_some(self)
    }
}
