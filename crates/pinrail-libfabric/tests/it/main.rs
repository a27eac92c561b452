//! Registration and transfer on the providers that any machine has.

mod caller;
mod ends;
mod moving;
#[path = "../../src/tests/pages.rs"]
mod pages;
