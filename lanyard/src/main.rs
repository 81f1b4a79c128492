//! Lanyard brings Azure identities to the components that need them.
fn main() {}
