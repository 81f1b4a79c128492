//! The built-in role definitions.
//!
//! `roles.json` contains the permission lists that Azure published on the date in the file. They change
//! without notice, so they are data with a date. Roles are matched by id, because Azure has renamed some
//! before.

use std::collections::HashMap;
use std::sync::LazyLock;

use lanyard_vocabulary::RoleDefinitionId;
use serde::Deserialize;
use uuid::Uuid;

use super::ActionPlane;
use super::pattern::ActionPattern;

/// A role definition with compiled permissions.
#[derive(Debug)]
pub(crate) struct RoleDefinition {
    /// The id, the same in every tenant.
    pub(crate) id: RoleDefinitionId,
    /// The display name.
    pub(crate) name: String,
    control: CompiledPermissions,
    data: CompiledPermissions,
}

#[derive(Debug)]
struct CompiledPermissions {
    granted: Vec<ActionPattern>,
    excluded: Vec<ActionPattern>,
}

/// A role's verdict on an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoleVerdict<'a> {
    Permitted,
    /// A pattern grants the action, and this one excludes it.
    Excluded(&'a str),
    NotGranted,
}

impl RoleDefinition {
    /// The verdict on `action`, which must be lower-case.
    pub(super) fn verdict_for_action(&self, plane: ActionPlane, action: &str) -> RoleVerdict<'_> {
        let permissions = self.permissions_of_plane(plane);
        if !permissions.granted.iter().any(|pattern| pattern.covers(action)) {
            return RoleVerdict::NotGranted;
        }
        permissions
            .excluded
            .iter()
            .find(|pattern| pattern.covers(action))
            .map_or(RoleVerdict::Permitted, |pattern| RoleVerdict::Excluded(pattern.as_str()))
    }

    /// The patterns that the role grants on a plane.
    pub(crate) fn granted_patterns(&self, plane: ActionPlane) -> impl Iterator<Item = &str> {
        self.permissions_of_plane(plane).granted.iter().map(ActionPattern::as_str)
    }

    /// The patterns that the role excludes on a plane.
    pub(crate) fn excluded_patterns(&self, plane: ActionPlane) -> impl Iterator<Item = &str> {
        self.permissions_of_plane(plane).excluded.iter().map(ActionPattern::as_str)
    }

    fn permissions_of_plane(&self, plane: ActionPlane) -> &CompiledPermissions {
        match plane {
            ActionPlane::Control => &self.control,
            ActionPlane::Data => &self.data,
        }
    }
}

/// The built-in role definitions.
#[derive(Debug)]
pub(crate) struct RoleCatalog {
    date: String,
    roles: Vec<RoleDefinition>,
    by_id: HashMap<Uuid, usize>,
}

impl RoleCatalog {
    /// The catalog of the embedded file, compiled on first use.
    pub(crate) fn built_in() -> &'static Self {
        static CATALOG: LazyLock<RoleCatalog> = LazyLock::new(RoleCatalog::load_embedded);
        &CATALOG
    }

    /// The publication date of the lists, as `YYYY-MM-DD`.
    pub(crate) fn date(&self) -> &str {
        &self.date
    }

    /// The role with this id.
    pub(crate) fn role(&self, id: RoleDefinitionId) -> Option<&RoleDefinition> {
        self.by_id.get(&id.0).and_then(|at| self.roles.get(*at))
    }

    /// Every role, in the order of the file.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RoleDefinition> {
        self.roles.iter()
    }

    #[expect(
        clippy::expect_used,
        reason = "the file is part of the program and read by every test"
    )]
    fn load_embedded() -> Self {
        let file: RoleFile =
            serde_json::from_str(include_str!("roles.json")).expect("roles.json is well-formed");
        let roles: Vec<_> = file.roles.into_iter().map(RoleFileEntry::compile).collect();
        let by_id = roles.iter().enumerate().map(|(at, role)| (role.id.0, at)).collect();
        Self { date: file.date, roles, by_id }
    }
}

#[derive(Deserialize)]
struct RoleFile {
    date: String,
    roles: Vec<RoleFileEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RoleFileEntry {
    id: Uuid,
    name: String,
    actions: Vec<String>,
    not_actions: Vec<String>,
    data_actions: Vec<String>,
}

impl RoleFileEntry {
    fn compile(self) -> RoleDefinition {
        let compile =
            |texts: Vec<String>| texts.iter().map(|t| ActionPattern::compile(t)).collect();
        RoleDefinition {
            id: RoleDefinitionId(self.id),
            name: self.name,
            control: CompiledPermissions {
                granted: compile(self.actions),
                excluded: compile(self.not_actions),
            },
            // No built-in role of the file excludes data actions.
            data: CompiledPermissions { granted: compile(self.data_actions), excluded: Vec::new() },
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::Component;

    use super::*;

    #[test]
    fn the_role_of_every_component_is_in_the_catalog() {
        for component in Component::ALL {
            let role = component.definition().role;
            assert!(RoleCatalog::built_in().role(role).is_some(), "{component}");
        }
    }

    #[test]
    fn ids_and_names_are_distinct_and_the_lists_are_dated() {
        let catalog = RoleCatalog::built_in();
        let names: std::collections::HashSet<_> = catalog.iter().map(|role| &role.name).collect();
        assert_eq!(catalog.by_id.len(), catalog.roles.len());
        assert_eq!(names.len(), catalog.roles.len());
        assert!(catalog.date().parse::<jiff::civil::Date>().is_ok());
    }

    #[test]
    fn contributor_may_write_everything_but_assignments() {
        let contributor = RoleDefinitionId(uuid::uuid!("b24988ac-6180-42a0-ab88-20f7382dd24c"));
        let role = RoleCatalog::built_in().role(contributor).unwrap();
        let verdict = |action| role.verdict_for_action(ActionPlane::Control, action);
        assert_eq!(verdict("microsoft.network/dnszones/write"), RoleVerdict::Permitted);
        assert_eq!(
            verdict("microsoft.authorization/roleassignments/write"),
            RoleVerdict::Excluded("Microsoft.Authorization/*/Write")
        );
        let secret = "microsoft.keyvault/vaults/secrets/getsecret/action";
        assert_eq!(role.verdict_for_action(ActionPlane::Data, secret), RoleVerdict::NotGranted);
    }
}
