//! Resources that a removal would delete with their group, although the journal does not record them.

use crate::destroy_plan::{DestroyPlan, UnrecordedResource};
use crate::effect::EffectAccess;
use crate::effect_error::EffectError;
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;

/// Lists the resources that the deletion of the plan's groups would remove, although the plan does not contain them,
/// or nothing shows that they belong to lanyard. A resource of another stack of the journal is one of them.
///
/// # Errors
///
/// The error of the first list that failed.
pub(crate) async fn find_unrecorded_resources<A: EffectAccess>(
    access: &A,
    plan: &DestroyPlan,
    tags: &OwnershipTags,
) -> Result<Vec<UnrecordedResource>, EffectError> {
    let mut unrecorded = Vec::new();
    let planned = plan.records();
    for resource in plan.resources.iter().filter(|it| A::is_container(&it.id)) {
        let group = &resource.id;
        let live = access.read(group).await?;
        let evidence = OwnershipEvidence::new(Some(&resource.record), tags);
        // A group of another client is not deleted.
        if !live.is_some_and(|live| evidence.is_ours(&live)) {
            continue;
        }
        let found = access.read_foreign_content(group, &planned, tags).await?;
        unrecorded
            .extend(found.into_iter().map(|id| UnrecordedResource { group: group.clone(), id }));
    }
    Ok(unrecorded)
}
