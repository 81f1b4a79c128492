//! Plans, checks and does the removal or the roll-back of stacks that a journal records.

use serde::{Serialize, Serializer};

use crate::destroy::destroy;
use crate::destroy_plan::{DestroyPlan, UnrecordedResource};
use crate::interrupted_writes::wait_for_interrupted_writes;
use crate::journal::RecordedState;
use crate::journal_target::JournalTarget;
use crate::ownership_tags::OwnershipTags;
use crate::resource_id::ResourceId;
use crate::resource_key::{ResourceKey, StackName};
use crate::roll_back::roll_back;
use crate::roll_back_plan::RollBackPlan;
use crate::run_context::RunSettings;
use crate::run_summary::RunSummary;
use crate::stack_error::StackError;
use crate::stack_rules::{AccessOf, StackRules};
use crate::unrecorded_resources::find_unrecorded_resources;

/// Stacks whose resources a journal records.
#[derive(Debug)]
pub struct RecordedStacks<R> {
    /// The access to the resources, and their rules.
    pub rules: R,
    /// The journal.
    pub journal: JournalTarget,
    /// The tags of the resources that lanyard created for the stacks.
    pub tags: OwnershipTags,
    /// The stacks of the journal that are removed or restored.
    pub stacks: Vec<StackName>,
}

/// A removal that has not begun.
#[derive(Debug)]
pub struct PlannedRemoval {
    /// The resources to remove, and the groups that stay.
    pub plan: DestroyPlan,
    /// The resources in the groups to delete that do not belong to the stacks.
    pub unrecorded: Vec<UnrecordedResource>,
}

/// What a removal planned and did. As a document, it is the summary of the run, or the plan without a run.
#[derive(Debug)]
pub struct StackRemoval {
    plan: DestroyPlan,
    /// `None` for `--dry-run`.
    pub run: Option<RunSummary>,
    /// Whether the journal records nothing of the stacks any more, also after a failure.
    pub is_empty: bool,
}

impl PlannedRemoval {
    /// Checks that the groups to delete contain no other resources, unless these are included.
    ///
    /// # Errors
    ///
    /// [`StackError::Unrecorded`].
    pub fn check_unrecorded(&self, include_unrecorded: bool) -> Result<(), StackError> {
        if self.unrecorded.is_empty() || include_unrecorded {
            return Ok(());
        }
        let hint = "if they belong to another stack of lanyard, destroy that stack first; otherwise move or delete them, or remove them with the groups by --include-unrecorded";
        Err(StackError::Unrecorded { resources: self.unrecorded.clone(), hint })
    }
}

impl StackRemoval {
    /// The result of `--dry-run`.
    pub fn planned(planned: PlannedRemoval) -> Self {
        Self { plan: planned.plan, run: None, is_empty: false }
    }

    /// The ids of the planned deletions, also of those that failed.
    pub fn ids(&self) -> impl Iterator<Item = &ResourceId> {
        self.plan.resources.iter().map(|resource| &resource.id)
    }

    /// Whether no removal failed.
    pub fn succeeded(&self) -> bool {
        self.run.as_ref().is_none_or(RunSummary::succeeded)
    }
}

impl Serialize for StackRemoval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.run {
            Some(summary) => summary.serialize(serializer),
            None => self.plan.serialize(serializer),
        }
    }
}

impl<R: StackRules> RecordedStacks<R> {
    /// What the journal records.
    ///
    /// # Errors
    ///
    /// [`StackError::NoJournal`], or the error of the journal.
    pub async fn read_recorded(&self) -> Result<RecordedState, StackError> {
        let recorded = self.journal.read().await?;
        recorded.ok_or_else(|| StackError::NoJournal(self.journal.location.clone()))
    }

    /// Plans the removal of the stacks' known resources. A [shared](StackRules::is_shared) group that contains other
    /// resources stays.
    ///
    /// # Errors
    ///
    /// [`StackError::Listing`].
    pub async fn plan(&self, known: &RecordedState) -> Result<PlannedRemoval, StackError> {
        let whole = DestroyPlan::new::<AccessOf<R>>(known, &self.stacks);
        let mut unrecorded = self.find_unrecorded(&whole).await?;
        let is_shared = |key: &ResourceKey, stack: &StackName| self.rules.is_shared(key, stack);
        let plan = DestroyPlan::keeping::<AccessOf<R>>(known, &self.stacks, &unrecorded, is_shared);
        unrecorded.retain(|it| !plan.kept_groups.iter().any(|group| group.id == it.group));
        Ok(PlannedRemoval { plan, unrecorded })
    }

    /// Checks that the groups to delete contain no other resources, unless these are included, and that no lock
    /// prevents a deletion. Locks that the signed-in identity may not read are not checked.
    ///
    /// # Errors
    ///
    /// [`StackError::Unrecorded`] or [`StackError::Locked`]; [`StackError::Locks`] if the locks cannot be listed.
    pub async fn check(
        &self,
        planned: &PlannedRemoval,
        include_unrecorded: bool,
    ) -> Result<(), StackError> {
        planned.check_unrecorded(include_unrecorded)?;
        self.check_locks(planned).await
    }

    /// Checks that no lock prevents a deletion, as [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// [`StackError::Locked`]; [`StackError::Locks`] if the locks cannot be listed.
    pub async fn check_locks(&self, planned: &PlannedRemoval) -> Result<(), StackError> {
        let locked = self.rules.check_removal(&planned.plan).await.map_err(StackError::Locks)?;
        if locked.is_empty() { Ok(()) } else { Err(StackError::Locked(locked)) }
    }

    /// Plans, checks and removes while no other command can use the journal: `plan` gets the state of the journal after
    /// the writes of an interrupted run have ended. A lock of a resource, and unrecorded resources that are not
    /// included, stop the removal before its first write.
    ///
    /// # Errors
    ///
    /// The error of `plan`, and [`StackError`]; a failed deletion is part of the result.
    pub async fn remove<E: From<StackError>>(
        &self,
        run: RunSettings<'_>,
        plan: impl AsyncFnOnce(RecordedState) -> Result<PlannedRemoval, E>,
    ) -> Result<StackRemoval, E> {
        let removal = self.journal.write(async |journal| {
            let context = run.context(self.rules.access(), journal, &self.tags);
            wait_for_interrupted_writes(context).await.map_err(StackError::Interrupted)?;
            let planned = plan(journal.state()).await?;
            self.check(&planned, run.options.removes_unrecorded).await?;
            let report =
                destroy(context, &planned.plan, &self.stacks).await.map_err(StackError::Journal)?;
            let left = DestroyPlan::new::<AccessOf<R>>(&journal.state(), &self.stacks);
            let is_empty = left.resources.is_empty();
            let run = Some(RunSummary::without_graph(&report, &self.rules));
            Ok(StackRemoval { plan: planned.plan, run, is_empty })
        });
        removal.await
    }

    /// Undoes the interrupted run of the stacks. `prepare_access` gets the plan before the first write, and returns the
    /// access that sends the writes.
    ///
    /// # Errors
    ///
    /// The error of `prepare_access`, and [`StackError`]; a failed write is part of the summary.
    pub async fn roll_back<E: From<StackError>>(
        &self,
        run: RunSettings<'_>,
        prepare_access: impl AsyncFnOnce(&RollBackPlan, &RecordedState) -> Result<AccessOf<R>, E>,
    ) -> Result<RunSummary, E> {
        // Without an interrupted run, no journal is created, and no lease is needed.
        self.roll_back_plan(&self.journal.read().await?.unwrap_or_default())?;
        let summary = self.journal.write(async |journal| {
            let plan = self.roll_back_plan(&journal.state())?;
            let access = &prepare_access(&plan, &journal.state()).await?;
            let context = run.context(access, journal, &self.tags);
            wait_for_interrupted_writes(context).await.map_err(StackError::Interrupted)?;
            let resources = self.find_unrecorded(&plan.removed).await?;
            if !resources.is_empty() {
                let hint = "run the command without --roll-back, which continues the interrupted run; or move or delete the resources, then run the command again";
                return Err(StackError::Unrecorded { resources, hint }.into());
            }
            let report = roll_back(context, &plan).await.map_err(StackError::RollBack)?;
            Ok(RunSummary::without_graph(&report, &self.rules))
        });
        summary.await
    }

    fn roll_back_plan(&self, recorded: &RecordedState) -> Result<RollBackPlan, StackError> {
        Ok(RollBackPlan::new::<AccessOf<R>>(recorded, &self.stacks)?)
    }

    /// The resources in the groups to delete that do not belong to the stacks.
    async fn find_unrecorded(
        &self,
        plan: &DestroyPlan,
    ) -> Result<Vec<UnrecordedResource>, StackError> {
        let found = find_unrecorded_resources(self.rules.access(), plan, &self.tags).await;
        found.map_err(StackError::Listing)
    }
}
