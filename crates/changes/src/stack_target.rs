//! Plans, checks and applies the desired resources of a command.

use std::collections::BTreeSet;

use lanyard_clock::SharedClock;

use crate::apply::apply;
use crate::effect::EffectAccess as _;
use crate::import::{ImportedResource, import_resources};
use crate::interrupted_writes::wait_for_interrupted_writes;
use crate::journal::RecordedState;
use crate::journal_target::JournalTarget;
use crate::live_read::read_live;
use crate::live_state::LiveState;
use crate::ownership_tags::OwnershipTags;
use crate::plan::Plan;
use crate::preflight_finding::{FindingSeverity, PreflightFinding};
use crate::resource_graph::ResourceGraph;
use crate::resource_key::ResourceKey;
use crate::run_context::{RunOptions, RunSettings};
use crate::run_report::RunReport;
use crate::stack_error::StackError;
use crate::stack_rules::{AccessOf, StackRules};
use crate::unrecorded_resources::find_unrecorded_resources;

/// The desired resources of a command, with the journal that records them.
#[derive(Debug)]
pub struct StackTarget<R: StackRules> {
    /// The access to the resources, and their rules.
    pub rules: R,
    /// The journal.
    pub journal: JournalTarget,
    /// The desired resources.
    pub graph: ResourceGraph<R::Effect>,
    /// The tags of the resources that lanyard creates.
    pub tags: OwnershipTags,
    /// Whether the graph has all resources of the command; otherwise a further run of the same command follows.
    pub is_complete: bool,
    /// Whether superseded resources stay, which lanyard created and the configuration no longer contains.
    pub keeps_superseded: bool,
}

/// A plan with what the checks before the first write found.
#[derive(Debug)]
pub struct CheckedPlan {
    /// The plan.
    pub plan: Plan,
    /// The live resources from which the plan was made.
    pub live: LiveState,
    /// What the checks found.
    pub findings: Vec<PreflightFinding>,
}

impl CheckedPlan {
    /// Whether the plan can be applied.
    pub fn is_applicable(&self) -> bool {
        self.plan.problems().next().is_none()
            && !self.findings.iter().any(|it| it.severity == FindingSeverity::Error)
    }
}

/// Checks the live resources for a command; returns findings beside those of every command.
pub type LiveCheck<'a> = &'a (dyn Fn(&LiveState) -> Vec<PreflightFinding> + Sync);

/// The check of commands without findings of their own.
pub fn no_live_check(_live: &LiveState) -> Vec<PreflightFinding> {
    Vec::new()
}

impl<R: StackRules> StackTarget<R> {
    /// Reads the live resources.
    ///
    /// # Errors
    ///
    /// [`StackError::Read`] with every resource that cannot be read.
    pub async fn read_live(&self) -> Result<LiveState, StackError> {
        read_live(self.rules.access(), &self.graph).await.map_err(StackError::Read)
    }

    /// Compares the live resources with the desired ones, and checks whether the writes can succeed. Sends GET requests
    /// only.
    ///
    /// # Errors
    ///
    /// [`StackError`] if a resource cannot be read, or a check failed.
    pub async fn plan(
        &self,
        recorded: &RecordedState,
        live_check: LiveCheck<'_>,
    ) -> Result<CheckedPlan, StackError> {
        let live = self.read_live().await?;
        let mut plan = self.compare(&live, recorded);
        let stale = self.stale_records(&plan).await?;
        let recorded = &recorded.without(&stale);
        if !stale.is_empty() {
            plan = self.compare(&live, recorded);
        }
        // The resources of a further run are not superseded.
        if self.keeps_superseded || !self.is_complete {
            plan = plan.without_deletions();
        }
        let mut findings = live_check(&live);
        findings.extend(self.check_deletions(&plan, recorded).await?);
        let checked = self.rules.check_plan(&plan, &self.graph).await;
        findings.extend(checked.map_err(StackError::Check)?);
        Ok(CheckedPlan { plan, live, findings })
    }

    /// Waits for the writes of an interrupted run, then plans, checks and applies. `on_plan` gets the plan before the first write.
    ///
    /// Returns `None` if the plan cannot be applied; nothing was written then.
    ///
    /// # Errors
    ///
    /// [`StackError`] if nothing was written, or the journal cannot be written; a failed write is part of the report.
    pub async fn apply(
        &self,
        run: RunSettings<'_>,
        live_check: LiveCheck<'_>,
        on_plan: impl FnOnce(&CheckedPlan),
    ) -> Result<Option<RunReport>, StackError> {
        let options = RunOptions { ends_run: self.is_complete, ..run.options };
        let run = RunSettings { options, ..run };
        let applied = self.journal.write(async |journal| {
            let context = run.context(self.rules.access(), journal, &self.tags);
            wait_for_interrupted_writes(context).await.map_err(StackError::Interrupted)?;
            let mut checked = self.plan(&journal.state(), live_check).await?;
            let found = self.rules.check_run(&checked.plan, &self.graph).await;
            checked.findings.extend(found.map_err(StackError::Check)?);
            on_plan(&checked);
            if !checked.is_applicable() {
                return Ok(None);
            }
            Ok(Some(apply(context, &self.graph, &checked.plan, checked.live).await?))
        });
        applied.await
    }

    /// Records the live resources as lanyard's.
    ///
    /// # Errors
    ///
    /// [`StackError`] if the live resources cannot be read, or the journal cannot be written.
    pub async fn import(&self, clock: &SharedClock) -> Result<Vec<ImportedResource>, StackError> {
        let imported = self.journal.write(async |journal| {
            let live = self.read_live().await?;
            Ok(import_resources(journal, clock, &self.graph, &live, &self.tags).await?)
        });
        imported.await
    }

    fn compare(&self, live: &LiveState, recorded: &RecordedState) -> Plan {
        let stays = |key: &ResourceKey| self.rules.stays(key, &self.graph);
        Plan::new(&self.graph, live, recorded, &self.tags, stays)
    }

    /// The records under an id that the configuration changed, and whose resource does not exist any more, or never did.
    /// If superseded resources stay, all records whose id changed.
    async fn stale_records(&self, plan: &Plan) -> Result<BTreeSet<ResourceKey>, StackError> {
        let mut stale = BTreeSet::new();
        for (key, problem) in plan.problems() {
            let Some(id) = problem.recorded_id() else { continue };
            if !self.keeps_superseded {
                let found = self.rules.access().read(id).await;
                if found.map_err(StackError::Check)?.is_some() {
                    continue;
                }
            }
            stale.insert(key.clone());
        }
        Ok(stale)
    }

    /// Finds resources that the deletion of a planned group would delete although they are not part of the plan.
    async fn check_deletions(
        &self,
        plan: &Plan,
        recorded: &RecordedState,
    ) -> Result<Vec<PreflightFinding>, StackError> {
        let removals = plan.removals::<AccessOf<R>>(recorded);
        let found = find_unrecorded_resources(self.rules.access(), &removals, &self.tags).await;
        let renamed: Vec<_> = plan.problems().filter_map(|(_, it)| it.recorded_id()).collect();
        let is_renamed = |id: &str| renamed.iter().any(|it| it.as_str().eq_ignore_ascii_case(id));
        let others = found.map_err(StackError::Check)?.into_iter().map(|it| it.id);
        let findings = others.filter(|id| !is_renamed(id)).map(|id| {
            PreflightFinding::error(
                "resource groups",
                format!("the plan deletes the resource group of `{id}`, and with it this resource, which is not part of the plan"),
                "move or delete the resource, or restore the configuration with which lanyard created the group",
            )
        });
        Ok(findings.collect())
    }
}
