//! Fuzzes the cost of opening PKCS#12 archives, which name the parameters of their key derivations: the input is an
//! archive. The runner limits time and memory.
#![no_main]

use lanyard_credential::bundle::Pkcs12Archive;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|archive: &[u8]| drop(Pkcs12Archive::open(archive, None)));
