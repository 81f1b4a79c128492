//! The whole road on one machine: composes the crates, decides nothing
