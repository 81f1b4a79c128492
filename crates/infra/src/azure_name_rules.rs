//! The rules of Azure for the names of resources.
//!
//! Source: Microsoft Learn, "Naming rules and restrictions for Azure resources". Azure accepts more characters in
//! some names (such as letters that are not ASCII in those of resource groups); lanyard never derives such names.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;

/// The rule for the names of one resource type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AzureNameRule {
    /// The resource, with its article, for messages.
    pub kind: &'static str,
    /// The shortest length.
    pub min: usize,
    /// The longest length.
    pub max: usize,
    /// The characters that are allowed besides ASCII letters and digits.
    pub punctuation: &'static str,
    /// The characters that may begin a name besides letters and digits.
    pub first: &'static str,
    /// The characters that may end a name besides letters and digits.
    pub last: &'static str,
}

/// Azure does not accept a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` cannot name {kind}: {reason}")]
pub struct InvalidAzureNameError {
    /// The name.
    pub name: String,
    /// The resource, with its article.
    pub kind: &'static str,
    /// The violated part of the rule.
    pub reason: String,
}

impl ErrorHint for InvalidAzureNameError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "choose another name; a shorter cluster name shortens the names of all its resources",
        ))
    }
}

/// Resource groups.
pub const RESOURCE_GROUP: AzureNameRule = AzureNameRule {
    kind: "a resource group",
    min: 1,
    max: 90,
    punctuation: "-_.()",
    first: "-_.()",
    last: "-_()",
};
/// Virtual networks.
pub const VIRTUAL_NETWORK: AzureNameRule = network_rule("a virtual network", 2, 64);
/// Network security groups.
pub const SECURITY_GROUP: AzureNameRule = network_rule("a network security group", 1, 80);
/// Subnets.
pub const SUBNET: AzureNameRule = network_rule("a subnet", 1, 80);
/// Public IP addresses.
pub const PUBLIC_IP: AzureNameRule = network_rule("a public IP address", 1, 80);
/// Load balancers and their children.
pub const LOAD_BALANCER: AzureNameRule = network_rule("a load balancer", 1, 80);
/// Links of private DNS zones to virtual networks.
pub const VIRTUAL_NETWORK_LINK: AzureNameRule = network_rule("a virtual network link", 1, 80);
/// User-assigned managed identities.
pub const MANAGED_IDENTITY: AzureNameRule = identity_rule("a managed identity", 128);
/// Federated credentials of managed identities.
pub const FEDERATED_CREDENTIAL: AzureNameRule = identity_rule("a federated credential", 120);

const fn network_rule(kind: &'static str, min: usize, max: usize) -> AzureNameRule {
    AzureNameRule { kind, min, max, punctuation: "-_.", first: "", last: "_" }
}

const fn identity_rule(kind: &'static str, max: usize) -> AzureNameRule {
    AzureNameRule { kind, min: 3, max, punctuation: "-_", first: "", last: "-_" }
}

impl AzureNameRule {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// Names the part of the rule that `name` violates.
    pub fn check(&self, name: &str) -> Result<(), InvalidAzureNameError> {
        match self.violation(name) {
            None => Ok(()),
            Some(reason) => {
                Err(InvalidAzureNameError { name: name.to_owned(), kind: self.kind, reason })
            }
        }
    }

    fn violation(&self, name: &str) -> Option<String> {
        let is_in = |set: &str, c: char| c.is_ascii_alphanumeric() || set.contains(c);
        let (min, max, length) = (self.min, self.max, name.chars().count());
        if !(min..=max).contains(&length) {
            return Some(format!("it has {length} characters, Azure allows {min} to {max}"));
        }
        if let Some(c) = name.chars().find(|c| !is_in(self.punctuation, *c)) {
            let allowed = self.punctuation;
            return Some(format!(
                "it contains `{c}`, Azure allows letters, digits and `{allowed}`"
            ));
        }
        if let Some(c) = name.chars().next().filter(|c| !is_in(self.first, *c)) {
            return Some(format!("it begins with `{c}`"));
        }
        let last = name.chars().next_back().filter(|c| !is_in(self.last, *c));
        last.map(|c| format!("it ends with `{c}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_limits_length_characters_and_ends() {
        let cases = [
            (RESOURCE_GROUP, "rg_(1).x", true),
            (RESOURCE_GROUP, "rg.", false),
            (RESOURCE_GROUP, "", false),
            (RESOURCE_GROUP, "a b", false),
            (VIRTUAL_NETWORK, "v", false),
            (VIRTUAL_NETWORK, "v_", true),
            (VIRTUAL_NETWORK, "v-", false),
            (VIRTUAL_NETWORK, "_v", false),
            (PUBLIC_IP, "x.y", true),
            (MANAGED_IDENTITY, "ab", false),
            (MANAGED_IDENTITY, "a.b", false),
            (MANAGED_IDENTITY, "a-b_", true),
        ];
        for (rule, name, valid) in cases {
            assert_eq!(rule.check(name).is_ok(), valid, "{} {name:?}", rule.kind);
        }
        for rule in [RESOURCE_GROUP, VIRTUAL_NETWORK, MANAGED_IDENTITY, FEDERATED_CREDENTIAL] {
            assert!(rule.check(&"a".repeat(rule.max)).is_ok(), "{}", rule.kind);
            assert!(rule.check(&"a".repeat(rule.max + 1)).is_err(), "{}", rule.kind);
        }
    }

    #[test]
    fn error_names_the_resource_and_the_violated_rule() {
        let error = FEDERATED_CREDENTIAL.check("ab").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`ab` cannot name a federated credential: it has 2 characters, Azure allows 3 to 120"
        );
    }
}
