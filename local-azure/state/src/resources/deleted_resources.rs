//! Deleted resources that lists of resources of any type still contain: those lists read a cache,
//! which lags behind.

use jiff::{SignedDuration, Timestamp};

use super::resource_store::{ArmResource, ArmResourceStore, DeletedArmResource};
use crate::authorization::AccessScope;

impl ArmResourceStore {
    /// Records deleted resources, if the settings delay their removal from lists.
    pub fn record_deleted(&mut self, removed: &[ArmResource], now: Timestamp) {
        self.deleted.extract_if(|_, deleted| deleted.listed_until <= now);
        let delay = SignedDuration::from_secs(i64::from(self.delays.deletion_seconds));
        if delay.is_zero() {
            return;
        }
        let Ok(listed_until) = now.checked_add(delay) else { return };
        for resource in removed {
            let key = resource.id.as_str().to_ascii_lowercase();
            let resource = resource.clone();
            self.deleted.insert(key, DeletedArmResource { resource, listed_until });
        }
    }

    /// The deleted resources at or below a scope that lists still contain.
    pub fn listed_deleted_within(
        &self,
        scope: &AccessScope,
        now: Timestamp,
    ) -> impl Iterator<Item = &ArmResource> {
        let is_listed = move |deleted: &&DeletedArmResource| {
            now < deleted.listed_until
                && scope.contains(&deleted.resource.id)
                && self.resource(&deleted.resource.id).is_none()
        };
        self.deleted.values().filter(is_listed).map(|deleted| &deleted.resource)
    }
}
