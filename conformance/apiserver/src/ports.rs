//! Free ports on the loopback address.
//!
//! They are taken below the range that the system gives to outgoing connections and to port 0
//! (32768 and up by default), so that nobody is given one between the choice and its use.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

const RANGE: Range<u16> = 20_000..32_000;

/// No port was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no {wanted} free ports were found on the loopback address")]
pub struct NoPorts {
    /// How many are needed.
    pub wanted: usize,
}

/// Chooses so many free ports. Callers with different seeds look in different places first.
///
/// All are held until the last is known, so that they are distinct.
///
/// # Errors
///
/// When fewer are free.
pub fn choose_ports<const COUNT: usize>(seed: u64) -> Result<[u16; COUNT], NoPorts> {
    let mut listeners = Vec::with_capacity(COUNT);
    for port in candidates(seed) {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            listeners.push((port, listener));
        }
        if listeners.len() == COUNT {
            break;
        }
    }
    let ports: Vec<u16> = listeners.iter().map(|(port, _)| *port).collect();
    <[u16; COUNT]>::try_from(ports).map_err(|_too_few| NoPorts { wanted: COUNT })
}

/// Every port of the range once, beginning at a place that the seed names.
fn candidates(seed: u64) -> impl Iterator<Item = u16> {
    let count = RANGE.end - RANGE.start;
    let begin = u16::try_from(seed % u64::from(count)).unwrap_or_default();
    (0..count).map(move |step| RANGE.start + (begin + step) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_of_the_range_is_a_candidate_once() {
        for seed in [0, 1, 11_999, 12_000, u64::MAX] {
            let mut ports: Vec<u16> = candidates(seed).collect();
            ports.sort_unstable();
            assert!(ports.iter().copied().eq(RANGE), "{seed}");
        }
    }

    #[test]
    fn a_port_that_is_in_use_is_passed_over() {
        let [first] = choose_ports(77).unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first));
        let [second] = choose_ports(77).unwrap();
        // Another process may have been faster; then it is in use all the same.
        drop(taken);
        assert_ne!(first, second);
    }
}
