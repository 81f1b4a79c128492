//! `lanyard credential`: commands that inspect credentials.

pub(crate) mod check;
