//! Fuzzes the order of certificate chains: the input is the concatenated DER of the certificates.
#![no_main]

use lanyard_keyvault::fuzzing::order_certificates;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|certificates: &[u8]| order_certificates(certificates));
