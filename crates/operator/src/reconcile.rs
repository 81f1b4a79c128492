//! One look at one cluster: observe, validate, desire, compare, apply, tell.

use std::ops::ControlFlow;
use std::time::Duration;

use lanyard_desired::Problems;
use lanyard_desired::drift::ChangedObject;
use lanyard_kubernetes::ApiError;

use crate::apply::Applier;
use crate::claim::{self, Claim};
use crate::context::Context;
use crate::deletion;
use crate::encryption_key::{self, Promotion, Recorded};
use crate::error::ReconcileError;
use crate::finalizer::{self, Added};
use crate::judge::{Judgement, Pause, Usable, judge};
use crate::key::ClusterKey;
use crate::lease::Fence;
use crate::objects::{NamespaceAge, compare, held_by_others};
use crate::observe::{Observed, control_plane_key, observe};
use crate::queue::Again;
use crate::settings::Role;
use crate::status::{self, Heard};

/// Looks at a cluster, makes what it should have and tells how its identities are.
pub(crate) async fn reconcile(
    context: &Context,
    key: &ClusterKey,
    fence: &Fence,
) -> Result<Again, ReconcileError> {
    let Some(mut observed) = observe(context, key) else {
        context.forget(key);
        return Ok(Again::OnChange);
    };
    let Context { api, stores, metrics, .. } = context;
    let applier = Applier { api, stores, metrics, fence };
    if !observed.cluster.is_deleting {
        claim::find_out(context, &mut observed).await;
    }
    let judgement = judge(&observed, &context.settings);
    if observed.cluster.is_deleting {
        return deletion::let_go(context, &observed, &judgement, applier).await;
    }
    match &judgement {
        Judgement::NotOurs(_) => Ok(Again::OnChange),
        Judgement::Unusable(problems) => {
            let heard = Heard::of_unusable(problems);
            let look = status::look(context, &observed, &heard, None);
            let held = status::tell(context, &observed, &look, fence).await?;
            let held = held.map(|due| context.wall_time(due));
            Ok(look.next.sooner(held).again(observed.now))
        }
        Judgement::Usable(usable) => {
            let made = make(context, &observed, usable, applier).await;
            if made.as_ref().is_ok_and(|made| made.goes_on) {
                // All that there is to tell yet is how much is missing.
                return Ok(Again::Now);
            }
            let left = left(context, &observed, made.as_ref().ok());
            let heard = match &made {
                Ok(Made { lost: Some(problems), .. }) => Heard::of_unusable(problems),
                _ => Heard { left: &left, ..Heard::of(usable) },
            };
            // What was written is there, and is no news to the watch.
            let has_written = made.as_ref().is_ok_and(|made| made.has_written);
            let after = if has_written { observe(context, key) } else { None };
            let observed = after.unwrap_or(observed);
            let look = status::look(context, &observed, &heard, None);
            // What failed keeps nobody from being told how the identities are.
            let told = status::tell(context, &observed, &look, fence).await;
            let made = made?;
            let held = made.held.into_iter().chain(told.as_ref().ok().copied().flatten()).min();
            let next = look.next.sooner(held.map(|due| context.wall_time(due)));
            let again = made.again(next, usable.pause, &observed);
            told?;
            again
        }
    }
}

/// What became of the objects of a cluster.
#[derive(Debug, Default)]
struct Made {
    left: Vec<ChangedObject>,
    error: Option<ReconcileError>,
    has_written: bool,
    /// When what is contested may be written again, by the monotonic clock.
    held: Option<Duration>,
    /// What everything else waited for is there now: there is more to do at once.
    goes_on: bool,
    /// Why nothing was made, though the cluster by itself can be used.
    lost: Option<Problems>,
    /// The API servers are waited for: nobody tells when they have rolled.
    awaits_rollout: bool,
}

/// What there is before any object is made.
#[derive(Debug, Default)]
struct Ground {
    /// The keys that encrypt are not recorded: the carriers stay as they are.
    leaves_keys: bool,
    /// Why they could not be recorded.
    refused: Vec<ApiError>,
    namespace: NamespaceAge,
    /// When what is contested may be written again, by the monotonic clock.
    held: Option<Duration>,
}

/// Makes what the cluster should have.
async fn make(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    applier: Applier<'_>,
) -> Result<Made, ReconcileError> {
    if context.settings.role == Role::IdentityOnly {
        return Ok(Made::default());
    }
    if let Claim::Unknown(error) = &observed.claim {
        return Err(error.clone().into());
    }
    let ground = match prepare(context, observed, usable, applier).await? {
        ControlFlow::Continue(ground) => ground,
        ControlFlow::Break(made) => return Ok(made),
    };
    let made = make_objects(context, observed, usable, applier, &ground).await;
    if !made.goes_on {
        return Ok(made);
    }
    // The control plane owns everything else, and another look would come after those of all clusters
    // that wait. What is wished anew meanwhile takes a look from the beginning: its keys come first.
    let same =
        |it: &Observed| it.cluster.is_wished_like(&observed.cluster) && !it.cluster.is_deleting;
    let Some(observed) = observe(context, &observed.key).filter(same) else { return Ok(made) };
    match judge(&observed, &context.settings) {
        Judgement::Usable(usable) if usable.pause == Pause::None => {
            let rest = make_objects(context, &observed, &usable, applier, &ground).await;
            Ok(Made { has_written: true, ..rest })
        }
        _ => Ok(made),
    }
}

/// Makes everything ready for the objects, or says why there will be none at this look.
async fn prepare(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    applier: Applier<'_>,
) -> Result<ControlFlow<Made, Ground>, ReconcileError> {
    let mut ground = Ground::default();
    if usable.pause != Pause::None {
        return Ok(ControlFlow::Continue(ground));
    }
    let added = finalizer::add(context, observed, applier.fence).await?;
    if observed.claim == Claim::Free {
        claim::create_namespace(observed, applier).await?;
        ground.namespace = NamespaceAge::New;
    }
    if added == Added::Now && encryption_key::is_unrecorded(context, usable) {
        // The record goes on from another version than was looked at: from the one that the answer
        // told, or from what the watch has yet to tell.
        let is_known = observe(context, &observed.key).is_some_and(|it| finalizer::is_held(&it));
        return Ok(ControlFlow::Break(Made { goes_on: is_known, ..Made::default() }));
    }
    if let Added::Held(until) = added {
        ground.held = Some(until);
    }
    match encryption_key::record(context, observed, usable, applier.fence).await? {
        Recorded::Kept => {}
        Recorded::Changed => return Ok(ControlFlow::Break(Made::default())),
        Recorded::Open { errors, until, is_needed } => {
            ground.held = ground.held.into_iter().chain(until).min();
            (ground.refused, ground.leaves_keys) = (errors, is_needed);
        }
        Recorded::Lost(problem) => {
            let lost = Some(Problems::from_iter([problem]));
            return Ok(ControlFlow::Break(Made { lost, ..Made::default() }));
        }
    }
    Ok(ControlFlow::Continue(ground))
}

/// Compares the objects with what is desired, and makes them so.
async fn make_objects(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    applier: Applier<'_>,
    ground: &Ground,
) -> Made {
    let mut comparison = compare(context, observed, usable, applier, ground.namespace).await;
    let mut errors = std::mem::take(&mut comparison.errors);
    errors.extend(ground.refused.iter().cloned());
    if usable.pause != Pause::None {
        let error = (!errors.is_empty()).then_some(ReconcileError::Calls(errors));
        return Made { left: comparison.left(), error, ..Made::default() };
    }
    // What else is contested or refused keeps no key from writing.
    let carriers = encryption_key::carriers(&observed.namespace);
    if ground.leaves_keys {
        comparison.leave(&carriers);
    }
    let has_keys =
        !ground.leaves_keys && carriers.iter().all(|carrier| comparison.is_as_desired(carrier));
    let control_plane = control_plane_key(&observed.key, &observed.namespace);
    let (applied, due) = comparison.apply(context, observed, applier).await;
    let left = held_by_others(&applied.failures);
    let mut held = ground.held.into_iter().chain(due).min();
    let has_written = !applied.written.is_empty();
    let has_owner = applied.written.contains(&control_plane);
    errors.extend(applied.failures.into_iter().map(|(_, error)| error));
    let mut is_cut_short = applied.is_cut_short;
    let mut awaits_rollout = encryption_key::awaits_promotion(context, usable);
    if awaits_rollout && has_keys && !is_cut_short {
        match encryption_key::promote(context, observed, usable, applier.fence).await {
            Ok(Promotion { recorded, awaits_rollout: awaits }) => {
                awaits_rollout = awaits;
                match recorded {
                    Recorded::Open { errors: refused, until, .. } => {
                        errors.extend(refused);
                        held = held.into_iter().chain(until).min();
                    }
                    Recorded::Kept | Recorded::Changed | Recorded::Lost(_) => {}
                }
            }
            Err(ReconcileError::Calls(refused)) => errors.extend(refused),
            Err(ReconcileError::NotLeader | ReconcileError::Panicked) => is_cut_short = true,
        }
    }
    let goes_on = has_owner && observed.owner.uid().is_none() && errors.is_empty() && !is_cut_short;
    let error = if is_cut_short {
        Some(ReconcileError::NotLeader)
    } else {
        (!errors.is_empty()).then_some(ReconcileError::Calls(errors))
    };
    Made { left, error, has_written, held, goes_on, awaits_rollout, lost: None }
}

/// What stays different, or does not stay as it is made, because of others.
fn left(context: &Context, observed: &Observed, made: Option<&Made>) -> Vec<ChangedObject> {
    let mut left = made.map(|made| made.left.clone()).unwrap_or_default();
    let now = context.api.clock().monotonic();
    let contested = context.contests.lock().contested(&observed.key, now).into_iter();
    let is_told = |it: &ChangedObject| left.iter().any(|told| told.object == it.object);
    let contested: Vec<_> = contested.filter(|it| !is_told(it)).collect();
    left.extend(contested);
    left
}

impl Made {
    /// When to look again.
    fn again(
        self,
        look: status::NextLook,
        pause: Pause,
        observed: &Observed,
    ) -> Result<Again, ReconcileError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let end = match pause {
            Pause::Until(end) => Some(end),
            Pause::None | Pause::Open if self.awaits_rollout => {
                observed.now.checked_add(ROLLOUT_RECHECK).ok()
            }
            Pause::None | Pause::Open => None,
        };
        Ok(look.sooner(end).again(observed.now))
    }
}

/// How often somebody looks whether the API servers have rolled.
const ROLLOUT_RECHECK: Duration = Duration::from_secs(15);
