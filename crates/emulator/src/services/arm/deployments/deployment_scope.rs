//! The scope of a deployment as template functions show it: `subscription()`, `resourceGroup()`,
//! `resourceId()`.

use serde_json::{Value, json};
use uuid::Uuid;

use super::expression::TemplateFunction;
use super::resource_ids::{relative_resource_id, resource_id, scope_id};
use super::template_functions::string_argument;

/// The subscription of a deployment and, for a deployment to a resource group, that group.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DeploymentScope {
    pub(super) subscription_id: String,
    pub(super) tenant_id: String,
    /// The display name of the subscription.
    pub(super) subscription_name: String,
    pub(super) group: Option<DeploymentGroup>,
}

/// The resource group of a deployment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DeploymentGroup {
    pub(super) name: String,
    /// The resource group as in replies.
    pub(super) resource: Value,
}

impl DeploymentScope {
    /// The id of the subscription or resource group.
    pub(super) fn id(&self) -> String {
        scope_id(&self.subscription_id, self.group.as_ref().map(|group| group.name.as_str()))
    }

    /// The result of `subscription()`.
    pub(super) fn subscription_object(&self) -> Value {
        json!({
            "id": scope_id(&self.subscription_id, None),
            "subscriptionId": self.subscription_id,
            "tenantId": self.tenant_id,
            "displayName": self.subscription_name,
        })
    }

    /// The result of `resourceGroup()`; `None` for a deployment to a subscription.
    pub(super) fn resource_group_object(&self) -> Option<&Value> {
        self.group.as_ref().map(|group| &group.resource)
    }

    /// `resourceId([subscriptionId], [resourceGroupName], resourceType, resourceName1, …)`. The error is a
    /// sentence.
    pub(super) fn resource_id_function(&self, arguments: Vec<Value>) -> Result<Value, String> {
        let arguments = arguments
            .into_iter()
            .map(|argument| string_argument(TemplateFunction::ResourceId, argument))
            .collect::<Result<Vec<_>, _>>()?;
        // Azure ignores a slash at the end of the type.
        let segmented = |argument: &String| argument.trim_end_matches('/').contains('/');
        let place = arguments.iter().position(segmented);
        let (Some(place), 1) = (place, arguments.iter().filter(|it| segmented(it)).count()) else {
            return Err(invalid_resource_id(&format!(
                "function requires exactly one multi-segmented argument which must be resource type including resource provider namespace. Current function arguments '{}'.",
                arguments.join(",")
            )));
        };
        let (scope, rest) = arguments.split_at(place);
        let Some((kind, names)) = rest.split_first() else {
            return Err(invalid_resource_id("the resource type is missing."));
        };
        let scope = self.argument_scope(scope)?;
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let trimmed = kind.trim_end_matches('/');
        match relative_resource_id(trimmed, &names) {
            Some(relative) => Ok(Value::from(resource_id(&scope, &relative))),
            None => Err(invalid_resource_id(&format!(
                "the type '{trimmed}' requires '{}' resource name argument(s).",
                trimmed.matches('/').count()
            ))),
        }
    }

    /// The scope in the arguments before the type.
    fn argument_scope(&self, arguments: &[String]) -> Result<String, String> {
        let group = self.group.as_ref().map(|group| group.name.as_str());
        match arguments {
            [] => Ok(self.id()),
            [subscription] if group.is_none() && Uuid::try_parse(subscription).is_ok() => {
                Ok(scope_id(subscription, None))
            }
            [group] => Ok(scope_id(&self.subscription_id, Some(group))),
            [subscription, group] if Uuid::try_parse(subscription).is_ok() => {
                Ok(scope_id(subscription, Some(group)))
            }
            [subscription, _] => Err(invalid_resource_id(&format!(
                "the subscription identifier '{subscription}' is malformed."
            ))),
            _ => Err(invalid_resource_id("too many arguments precede the resource type.")),
        }
    }
}

fn invalid_resource_id(problem: &str) -> String {
    format!(
        "Unable to evaluate template language function 'resourceId': {problem} Please see https://aka.ms/arm-functions/#resourceid for usage details."
    )
}
