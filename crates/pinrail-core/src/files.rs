//! Text forms of the plain data (feature `files`).
//!
//! - [`batch`]: a [`BatchSpec`](crate::batch::BatchSpec) as JSON.
//! - [`machine`]: a [`Machine`](crate::Machine) as TOML, to be written by hand or saved from a discovery.

pub mod batch;
pub mod machine;
