//! What differs between services: their access, the checks before the first write, and which resources a run keeps.

use std::fmt;

use lanyard_azure::RateLimitHeadroom;

use crate::destroy_plan::DestroyPlan;
use crate::effect::Effect;
use crate::effect_error::EffectError;
use crate::plan::Plan;
use crate::preflight_finding::PreflightFinding;
use crate::resource_graph::ResourceGraph;
use crate::resource_key::{ResourceKey, StackName};

/// The access of the effects to which the rules apply.
pub(crate) type AccessOf<R> = <<R as StackRules>::Effect as Effect>::Access;

/// The access to the resources of stacks, and the rules that hold for them beside those of each effect.
pub trait StackRules: fmt::Debug + Send + Sync {
    /// What the stacks consist of.
    type Effect: Effect;

    /// The access that sends the requests.
    fn access(&self) -> &<Self::Effect as Effect>::Access;

    /// How much of the rate limit is left, if the service reports it.
    fn rate_limit_headroom(&self) -> Option<RateLimitHeadroom> {
        None
    }

    /// Whether a recorded resource stays although the graph no longer contains it.
    fn stays(&self, key: &ResourceKey, graph: &ResourceGraph<Self::Effect>) -> bool {
        let _ = (key, graph);
        false
    }

    /// Whether other stacks or the user may have resources in the group with this key. A removal keeps the group if it
    /// contains any.
    fn is_shared(&self, key: &ResourceKey, stack: &StackName) -> bool {
        let _ = (key, stack);
        false
    }

    /// Checks whether the writes of a plan can succeed. Sends GET requests only.
    fn check_plan(
        &self,
        plan: &Plan,
        graph: &ResourceGraph<Self::Effect>,
    ) -> impl Future<Output = Result<Vec<PreflightFinding>, EffectError>> + Send {
        let _ = (plan, graph);
        std::future::ready(Ok(Vec::new()))
    }

    /// The checks that need other requests than GET; they change nothing. Only runs send them, before the first write.
    fn check_run(
        &self,
        plan: &Plan,
        graph: &ResourceGraph<Self::Effect>,
    ) -> impl Future<Output = Result<Vec<PreflightFinding>, EffectError>> + Send {
        let _ = (plan, graph);
        std::future::ready(Ok(Vec::new()))
    }

    /// Why the service would reject deletions of the plan, one sentence each. Sends GET requests only.
    fn check_removal(
        &self,
        plan: &DestroyPlan,
    ) -> impl Future<Output = Result<Vec<String>, EffectError>> + Send {
        let _ = plan;
        std::future::ready(Ok(Vec::new()))
    }
}
