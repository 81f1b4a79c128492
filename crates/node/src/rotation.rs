//! When a mounted volume is looked at again.
//!
//! Each volume has a [`PollHistory`]; [`decide`] says from it, from what is known about the times
//! of its objects and from the wishes of its class whether a look is due. It is asked by the
//! kubelet's republish and by our own [`Rotator`], so that rotation works with and without
//! `requiresRepublish`, and neither asks the vault more often than the interval says.
//!
//! | moment | wait until the next look |
//! |---|---|
//! | all is well | the interval `I` |
//! | near `renew_after` or `not_after` of an object | an eighth of the distance to it, between the floor `F` and `I` |
//! | past `not_after` | `F` |
//! | the annotation [`RotationPolicy::REFRESH`] changed | up to 5 s, spread over the volumes |
//! | failures, the n-th in a row | `10 s · 2^(n-1)` (`F · 2^(n-1)` where it does not heal by itself), at most `I` |
//! | the service asked for a pause | at least that pause |
//! | turned away: others find the service gone, and one of them sees whether it is back | until that is seen, 10 s at least; it counts as no failure |
//! | after a restart | as before it, spread over a tenth of `I`, at most 30 s |
//!
//! `F` is `max(I/4, 30 s)`, and never more than `I`. A wait is up to a tenth longer, one after a
//! failure or a turning away up to a fifth. The variation comes from a digest of the volume and of the time of its
//! last look, so that the nodes of a fleet drift apart and every decision can be repeated. No two looks at a volume are closer than 10 s (`0.9·F` where that is
//! less), and in health no volume goes without a look for longer than `1.1·I`. A provider may answer
//! a look with what another volume read shortly before, as ours does.
//!
//! Times are wall times, because they survive the process in the volume's marker. A clock that
//! was set back makes a volume due once.

mod backoff;
mod decision;
mod interval;
mod jitter;
mod poll_history;
mod poll_wait;
mod proof_state;
mod rotation_policy;
mod rotator;

pub use decision::{PollDecision, PollInputs, PollReason, decide_poll};
pub use interval::{IntervalBounds, IntervalProblem, ParseIntervalError, PollInterval};
pub use poll_history::{PollHistory, PollRecord};
pub(crate) use poll_wait::min_wait as shortest_wait;
pub use proof_state::{ProofState, proof_state};
pub use rotation_policy::{
    AnnotationProblem, OlderVersion, ParseOlderVersionError, RefreshRequest, RotationPolicy,
};
pub use rotator::{RotatableVolumes, RotatingVolume, Rotator, RotatorSettings};
