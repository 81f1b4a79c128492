//! Polls mounted volumes for new content.
//!
//! Each volume has a [`PollHistory`]. [`decide_poll`] decides from it, from the timestamps of the
//! mounted objects and from the class's [`RotationPolicy`](lanyard_provider::RotationPolicy) whether a poll is due. Both the
//! kubelet's republish and the node plugin's own [`Rotator`] call it. So rotation works with and
//! without `requiresRepublish`, and neither reads the vault more often than the interval allows.
//!
//! | moment | wait until the next poll |
//! |---|---|
//! | healthy | the interval `I` |
//! | near `renew_after` or `not_after` of an object | an eighth of the distance to it, between the floor `F` and `I` |
//! | past `not_after` | `F` |
//! | the annotation [`RotationPolicy::REFRESH`](lanyard_provider::RotationPolicy::REFRESH) changed | up to 5 s, spread over the volumes |
//! | failures, the n-th in a row | `10 s · 2^(n-1)` (`F · 2^(n-1)` if the error does not recover by itself), at most `I` |
//! | the service asked for a pause | at least that pause |
//! | suppressed: another read found the service unavailable, and one read probes it | until the probe ends, at least 10 s; does not count as a failure |
//! | after a restart | as before it, spread over a tenth of `I`, at most 30 s |
//!
//! `F` is `max(I/4, 30 s)`, and never more than `I`. A wait is up to a tenth longer; after a
//! failure or a suppressed poll, up to a fifth. This jitter comes from a digest of the volume and
//! of the time of its last poll, so that the nodes of a fleet drift apart and every decision is
//! reproducible. Two polls of a volume are at least 10 s apart (`0.9·F` if that is less), and a
//! healthy volume is polled at least every `1.1·I`. A provider may answer a poll with a value that
//! another volume read shortly before, as the `azure` provider does.
//!
//! Times are wall-clock times, because they survive the process in the volume's marker. After the
//! clock was set back, a volume is due once.

mod backoff;
mod decision;
mod jitter;
mod pod_token_state;
mod poll_history;
mod poll_wait;
mod rotator;

pub use decision::{PollDecision, PollInputs, PollReason, decide_poll};
pub use pod_token_state::{PodTokenState, pod_token_state};
pub use poll_history::{PollHistory, PollRecord};
pub use rotator::{RotatableVolumes, RotationTarget, Rotator, RotatorSettings};
