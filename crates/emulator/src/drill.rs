//! Drills: one broken hop each.
