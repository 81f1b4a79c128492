//! What the signed-in identity lacks of the permissions that the commands need.

use std::collections::BTreeSet;

use lanyard_azure::{ArmClient, AssignedPrincipalType, AzureCallError, CallerIdentity};
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;

use crate::caller_permissions::{RequiredAction, missing_actions, missing_data_actions};
use crate::needed_actions::NeededActions;

/// What one command needs and lacks.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandPermissions {
    /// The name of the command.
    pub command: String,
    /// The control plane actions that are not allowed at the scope.
    pub missing_actions: Vec<String>,
    /// The data actions that are not allowed at the vault.
    pub missing_data_actions: Vec<String>,
    /// The data actions that the command needs at a vault, if no vault is named.
    pub unchecked_data_actions: Vec<String>,
    /// The permissions of Microsoft Graph that the identity lacks.
    pub missing_graph_permissions: Vec<String>,
}

impl CommandPermissions {
    /// Whether the identity has all permissions that were checked.
    pub const fn is_complete(&self) -> bool {
        self.missing_count() == 0
    }

    const fn missing_count(&self) -> usize {
        self.missing_actions.len()
            + self.missing_data_actions.len()
            + self.missing_graph_permissions.len()
    }

    /// The result in a word.
    pub fn result(&self) -> String {
        match self.missing_count() {
            0 if self.unchecked_data_actions.is_empty() => "allowed".to_owned(),
            0 => "unknown".to_owned(),
            missing => format!("{missing} missing"),
        }
    }
}

/// What the signed-in identity lacks of the permissions that some commands need.
#[derive(Debug)]
pub struct MissingPermissions {
    /// The control plane actions at the scope.
    actions: BTreeSet<String>,
    /// The data actions at the vault; `None` if no vault is named.
    data_actions: Option<BTreeSet<String>>,
}

impl MissingPermissions {
    /// Reads what the roles of the identity allow at the scope and at the vault.
    ///
    /// # Errors
    ///
    /// The error of the first request that failed.
    pub async fn read(
        arm: &ArmClient,
        needed: &[NeededActions],
        scope: &ArmResourceId,
        vault: Option<&ArmResourceId>,
    ) -> Result<Self, AzureCallError> {
        let required = needed.iter().flat_map(|it| &it.actions);
        let required: Vec<_> = required.map(|it| RequiredAction::new(scope, it)).collect();
        let actions = action_names(missing_actions(arm, &required).await?);
        let data_actions = match vault {
            None => None,
            Some(vault) => {
                let required = needed.iter().flat_map(|it| it.vault_actions);
                let required: Vec<_> = required.map(|it| RequiredAction::new(vault, *it)).collect();
                Some(action_names(missing_data_actions(arm, &required).await?))
            }
        };
        Ok(Self { actions, data_actions })
    }

    /// What one command lacks. `graph` is the identity of a token for Microsoft Graph.
    pub fn of_command(&self, needed: &NeededActions, graph: &CallerIdentity) -> CommandPermissions {
        let vault_actions = needed.vault_actions.iter().map(|action| (*action).to_owned());
        let (missing_data_actions, unchecked_data_actions): (Vec<_>, Vec<_>) =
            match &self.data_actions {
                Some(missing) => {
                    (vault_actions.filter(|it| missing.contains(it)).collect(), Vec::new())
                }
                None => (Vec::new(), vault_actions.collect()),
            };
        // A command that writes credentials into a vault also writes their applications.
        let writes_applications = !needed.vault_actions.is_empty();
        let graph = missing_graph_permission(graph).filter(|_| writes_applications);
        CommandPermissions {
            command: needed.command.to_owned(),
            missing_actions: needed.actions.intersection(&self.actions).cloned().collect(),
            missing_data_actions,
            unchecked_data_actions,
            missing_graph_permissions: graph.map(str::to_owned).into_iter().collect(),
        }
    }
}

fn action_names(missing: Vec<RequiredAction>) -> BTreeSet<String> {
    missing.into_iter().map(|it| it.action).collect()
}

/// The permissions of Microsoft Graph of which one suffices to write the applications of an environment.
const GRAPH_PERMISSIONS: [&str; 4] = [
    "Application.ReadWrite.OwnedBy",
    "Application.ReadWrite.All",
    "Directory.ReadWrite.All",
    // Users may do what their directory roles allow, which the token does not say.
    "Directory.AccessAsUser.All",
];

fn missing_graph_permission(graph: &CallerIdentity) -> Option<&'static str> {
    let has = |name: &str| graph.permissions.iter().any(|it| it.eq_ignore_ascii_case(name));
    let name = match graph.principal_type {
        AssignedPrincipalType::User => GRAPH_PERMISSIONS[1],
        _ => GRAPH_PERMISSIONS[0],
    };
    (!GRAPH_PERMISSIONS.into_iter().any(has)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_actions_are_unknown_without_a_vault() {
        let graph = CallerIdentity {
            object_id: uuid::Uuid::from_u128(1),
            tenant: "6d1f8a53-90c7-4c2b-b8e4-2f5a7c901d36".parse().unwrap(),
            principal_type: AssignedPrincipalType::ServicePrincipal,
            permissions: vec![GRAPH_PERMISSIONS[0].to_owned()],
            creator_names: Vec::new(),
        };
        let vault_actions = &["read", "write"];
        let needed = NeededActions {
            command: "rotate identity azure",
            actions: BTreeSet::new(),
            vault_actions,
        };
        for (data_actions, result) in [
            (None, "unknown"),
            (Some(BTreeSet::new()), "allowed"),
            (Some(BTreeSet::from(["write".to_owned()])), "1 missing"),
        ] {
            let missing = MissingPermissions { actions: BTreeSet::new(), data_actions };
            let permissions = missing.of_command(&needed, &graph);
            assert_eq!(permissions.result(), result);
            assert_eq!(permissions.is_complete(), result != "1 missing");
        }
    }
}
