//! Text forms of the plain data (feature `files`).
//!
//! - [`batch`]: a [`BatchSpec`](crate::batch::BatchSpec) as JSON.
//! - [`descriptor`]: a [`Descriptor`](crate::descriptor::Descriptor) as JSON and in serde's other formats, for a peer.
//! - [`machine`]: a [`Machine`](crate::Machine) as TOML, to be written by hand or saved from a discovery.

pub mod batch;
pub mod descriptor;
pub mod machine;
