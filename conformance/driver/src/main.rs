//! Conformance driver.
fn main() {}
