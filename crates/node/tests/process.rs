//! The node as the kubelet meets it: real sockets, real mounts, a vault of memory.

#[path = "process/fakes.rs"]
mod fakes;
#[path = "process/markers.rs"]
mod markers;
#[path = "process/sockets.rs"]
mod sockets;
#[path = "process/volumes.rs"]
mod volumes;
