//! The ledger: one entry per request, without anything secret.
