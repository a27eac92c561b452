//! Registration and transfer on the providers that any machine has.

mod moving;
mod pages;
