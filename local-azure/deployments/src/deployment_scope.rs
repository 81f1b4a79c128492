//! The scope of a deployment as template functions show it: `subscription()`, `resourceGroup()`,
//! `resourceId()`.

use serde_json::{Value, json};
use uuid::Uuid;

use super::expression::TemplateFunction;
use super::resource_ids::{relative_resource_id, resource_id, scope_id};
use super::template_functions::string_argument;

/// The subscription of a deployment, and the resource group of a deployment to a resource group.
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

    /// `resourceId([subscriptionId], [resourceGroupName], resourceType, resourceName1, …)`. The
    /// error text is a full sentence.
    pub(super) fn resource_id_function(&self, arguments: Vec<Value>) -> Result<Value, String> {
        let parsed = ResourceIdArguments::parse(TemplateFunction::ResourceId, arguments)?;
        let scope = self.argument_scope(&parsed.scope)?;
        parsed.resource_id(&scope)
    }

    /// `subscriptionResourceId([subscriptionId], resourceType, resourceName1, …)`. The error is a sentence.
    pub(super) fn subscription_resource_id_function(
        &self,
        arguments: Vec<Value>,
    ) -> Result<Value, String> {
        let function = TemplateFunction::SubscriptionResourceId;
        let parsed = ResourceIdArguments::parse(function, arguments)?;
        let subscription = match parsed.scope.as_slice() {
            [] => &self.subscription_id,
            [subscription] if Uuid::try_parse(subscription).is_ok() => subscription,
            [subscription] => {
                let problem = format!("the subscription identifier '{subscription}' is malformed.");
                return Err(invalid_arguments(function, &problem));
            }
            _ => {
                let problem = "too many arguments precede the resource type.";
                return Err(invalid_arguments(function, problem));
            }
        };
        parsed.resource_id(&scope_id(subscription, None))
    }

    /// Returns the id of the scope that the arguments before the resource type name.
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
            [subscription, _] => {
                let problem = format!("the subscription identifier '{subscription}' is malformed.");
                Err(invalid_arguments(TemplateFunction::ResourceId, &problem))
            }
            _ => {
                let problem = "too many arguments precede the resource type.";
                Err(invalid_arguments(TemplateFunction::ResourceId, problem))
            }
        }
    }
}

/// The arguments of `resourceId` and `subscriptionResourceId`.
struct ResourceIdArguments {
    function: TemplateFunction,
    /// The arguments before the resource type: a subscription, a resource group, or both.
    scope: Vec<String>,
    /// The resource type, without a slash at its end.
    resource_type: String,
    names: Vec<String>,
}

impl ResourceIdArguments {
    fn parse(function: TemplateFunction, arguments: Vec<Value>) -> Result<Self, String> {
        let mut scope = arguments
            .into_iter()
            .map(|argument| string_argument(function, argument))
            .collect::<Result<Vec<_>, _>>()?;
        // Azure ignores a slash at the end of the resource type.
        let segmented = |argument: &String| argument.trim_end_matches('/').contains('/');
        let place = scope.iter().position(segmented);
        let (Some(place), 1) = (place, scope.iter().filter(|it| segmented(it)).count()) else {
            let problem = format!(
                "function requires exactly one multi-segmented argument which must be resource type including resource provider namespace. Current function arguments '{}'.",
                scope.join(",")
            );
            return Err(invalid_arguments(function, &problem));
        };
        let names = scope.split_off(place + 1);
        let resource_type = scope.pop().unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Self { function, scope, resource_type, names })
    }

    /// The id of the resource at `scope`.
    fn resource_id(&self, scope: &str) -> Result<Value, String> {
        let names: Vec<_> = self.names.iter().map(String::as_str).collect();
        let kind = &self.resource_type;
        match relative_resource_id(kind, &names) {
            Some(relative) => Ok(Value::from(resource_id(scope, &relative))),
            None => Err(invalid_arguments(
                self.function,
                &format!(
                    "the type '{kind}' requires '{}' resource name argument(s).",
                    kind.matches('/').count()
                ),
            )),
        }
    }
}

fn invalid_arguments(function: TemplateFunction, problem: &str) -> String {
    let name = function.name();
    format!(
        "Unable to evaluate template language function '{name}': {problem} Please see https://aka.ms/arm-functions/#{} for usage details.",
        name.to_ascii_lowercase()
    )
}
