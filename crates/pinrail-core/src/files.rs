//! Text forms of the plain data (feature `files`).
//!
//! - [`machine`]: a [`Machine`](crate::Machine) as TOML, to be written by hand or saved from a discovery.

pub mod machine;
