//! The node as the kubelet uses it: real sockets, real mounts, a fake vault in memory.

#[cfg(test)]
#[path = "process/fakes.rs"]
mod fakes;
#[cfg(test)]
#[path = "process/secret_leaks.rs"]
mod secret_leaks;
#[cfg(test)]
#[path = "process/sockets.rs"]
mod sockets;
#[cfg(test)]
#[path = "process/volumes.rs"]
mod volumes;
