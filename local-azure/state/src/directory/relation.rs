//! The references to an object in other objects: memberships, owners, app role assignments
//! and directory roles.

use uuid::Uuid;

use super::EntraDirectory;
use super::deleted_object::RestorableObject;

impl EntraDirectory {
    /// The owners of an application, a service principal or a group; `None` for other object ids.
    pub fn owners_mut(&mut self, object_id: Uuid) -> Option<&mut Vec<Uuid>> {
        let application = self.applications.get_mut(&object_id).map(|it| &mut it.owners);
        let principal = self.service_principals.get_mut(&object_id).map(|it| &mut it.owners);
        let group = self.groups.get_mut(&object_id).map(|it| &mut it.owners);
        application.or(principal).or(group)
    }

    /// Removes a permanently deleted object from groups and owners, and deletes its app role
    /// assignments and directory roles. An object that can be restored keeps them, except its
    /// groups: [`super::deleted_object::DeletedDirectoryObject`] stores those.
    pub(crate) fn remove_relations_of(&mut self, object_id: Uuid) {
        self.remove_from_groups(object_id);
        self.remove_from_owners(object_id);
        let removed = self.app_role_assignments.extract_if(|_, assignment| {
            assignment.principal_id == object_id || assignment.resource_id == object_id
        });
        for (_, assignment) in removed {
            self.index.remove_app_role_assignment(&assignment);
        }
        self.directory_roles.extract_if(|_, assignment| assignment.principal_id == object_id);
    }

    fn remove_from_owners(&mut self, owner: Uuid) {
        let owned: Vec<_> = self.objects_owned_by(owner).map(|object| object.object_id()).collect();
        for id in owned {
            if let Some(owners) = self.owners_mut(id) {
                owners.retain(|known| *known != owner);
            }
        }
        let deleted: Vec<_> = self
            .deleted_objects
            .values()
            .map(|deleted| deleted.as_directory_object())
            .filter(|object| object.owners().contains(&owner))
            .map(|object| object.object_id())
            .collect();
        for id in deleted {
            let owners = match self.deleted_objects.get_mut(&id).map(|it| &mut it.object) {
                Some(RestorableObject::Application(application)) => &mut application.owners,
                Some(RestorableObject::ServicePrincipal(principal)) => &mut principal.owners,
                Some(RestorableObject::User(_)) | None => continue,
            };
            owners.retain(|known| *known != owner);
        }
    }
}
