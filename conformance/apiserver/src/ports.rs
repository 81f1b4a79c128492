//! Free ports on the loopback address.
//!
//! The range lies below the one from which the operating system takes ports of outgoing connections and port
//! 0 (32768 and up by default). A port of that range cannot be listened on while a connection uses it, and
//! for a minute after, so a port that is free when it is chosen might be in use later.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

const PORT_RANGE: Range<u16> = 20_000..32_000;

/// Fewer than `wanted` consecutive loopback ports were free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no {wanted} free ports in a row were found on the loopback address")]
pub struct NoFreePorts {
    /// The number of ports that were requested.
    pub wanted: usize,
}

/// Chooses `COUNT` free ports with consecutive numbers. Each call of a process continues after the ports
/// of the call before, and each process starts at another port of the range.
///
/// # Errors
/// Returns [`NoFreePorts`] if no such ports are free.
pub fn choose_ports<const COUNT: usize>() -> Result<[u16; COUNT], NoFreePorts> {
    static STEP: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(0x9e37_79b9);
    let steps = std::iter::repeat_with(|| STEP.fetch_add(1, Ordering::Relaxed));
    choose_consecutive_ports(steps.map(|step| candidate_port(first, step)).take(PORT_RANGE.len()))
}

/// Returns the first consecutive ports of `candidates` that are free. All stay bound until the last one is
/// found.
fn choose_consecutive_ports<const COUNT: usize>(
    candidates: impl Iterator<Item = u16>,
) -> Result<[u16; COUNT], NoFreePorts> {
    let mut row: Vec<(u16, TcpListener)> = Vec::with_capacity(COUNT);
    for port in candidates {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
        if listener.is_none() || row.last().is_some_and(|(last, _)| last + 1 != port) {
            row.clear();
        }
        row.extend(listener.map(|listener| (port, listener)));
        if row.len() == COUNT {
            break;
        }
    }
    let ports: Vec<u16> = row.iter().map(|(port, _)| *port).collect();
    <[u16; COUNT]>::try_from(ports).map_err(|_too_few| NoFreePorts { wanted: COUNT })
}

/// The port that is `step` steps after `first`, within the range.
fn candidate_port(first: u32, step: u32) -> u16 {
    let place = first.wrapping_add(step) % u32::from(PORT_RANGE.end - PORT_RANGE.start);
    PORT_RANGE.start + u16::try_from(place).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_of_the_range_is_a_candidate_once() {
        for first in [0, 1, 11_999, 12_000, 4_000_000_000] {
            let mut ports: Vec<u16> = (0..12_000).map(|step| candidate_port(first, step)).collect();
            ports.sort_unstable();
            assert!(ports.iter().copied().eq(PORT_RANGE), "{first}");
        }
    }

    #[test]
    fn two_calls_get_different_ports() {
        let [first, second] = choose_ports().unwrap();
        let [third] = choose_ports().unwrap();
        assert!(second == first + 1 && third != first && third != second);
    }

    #[test]
    fn consecutive_ports_skip_used_ports_and_gaps() {
        let [first, second, third, fourth] = choose_ports().unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, second)).unwrap();
        assert_eq!(
            choose_consecutive_ports([first, second, third, fourth].into_iter()),
            Ok([third, fourth])
        );
        drop(taken);
        assert_eq!(
            choose_consecutive_ports([first, third, fourth].into_iter()),
            Ok([third, fourth])
        );
        let none = choose_consecutive_ports::<2>([first, third].into_iter());
        assert_eq!(none, Err(NoFreePorts { wanted: 2 }));
    }
}
