//! The local Azure: serving it, pointing clients at it, running a command inside it.

pub(crate) mod env;
mod exports;
mod ledger;
pub(crate) mod run;
pub(crate) mod serve;
mod session;
mod world;

pub(crate) use exports::{Exports, TrustFiles};
