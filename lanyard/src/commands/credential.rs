//! Looking at credentials.

pub(crate) mod check;
