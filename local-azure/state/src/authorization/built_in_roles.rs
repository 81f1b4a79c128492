//! The built-in roles of Azure, from the embedded file `built_in_roles.txt`.
//!
//! Azure changes the permissions of its roles without notice, so they are data with a source and a date.
//! `cargo xtask codegen azure-roles` writes the file and describes its format. Only the names and ids are read at
//! first use; the permissions of a role are compiled when that role is used.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use lanyard_vocabulary::RoleDefinitionId;
use uuid::Uuid;

use super::condition::Condition;
use super::pattern::ActionPattern;
use super::role_definition::{PermissionBlock, RoleDefinition};

/// A built-in role whose permissions are compiled on first use.
#[derive(Debug)]
pub struct BuiltInRole {
    /// The id, the same in every tenant.
    pub id: RoleDefinitionId,
    /// The display name.
    pub name: &'static str,
    /// The lines of the embedded file with the permissions, which are parsed on first use.
    permissions: &'static str,
    definition: OnceLock<RoleDefinition>,
}

impl BuiltInRole {
    /// The role with its compiled permissions.
    pub fn definition(&self) -> &RoleDefinition {
        self.definition.get_or_init(|| RoleDefinition {
            id: self.id,
            name: self.name.to_owned(),
            permissions: parse_permissions(self.permissions),
        })
    }
}

/// The built-in roles of the embedded file.
#[derive(Debug)]
pub struct BuiltInRoles {
    source: &'static str,
    date: &'static str,
    /// Ordered by name.
    roles: Vec<BuiltInRole>,
    by_id: HashMap<Uuid, usize>,
}

impl BuiltInRoles {
    /// The roles of the embedded file. The first call reads the names and ids.
    pub fn embedded() -> &'static Self {
        static ROLES: LazyLock<BuiltInRoles> =
            LazyLock::new(|| BuiltInRoles::parse(include_str!("built_in_roles.txt")));
        &ROLES
    }

    /// Parses a file of roles. Lines that are not in its format are ignored; a test checks that the embedded
    /// file has none.
    fn parse(file: &'static str) -> Self {
        let mut sections = file.split("\n=");
        let header = sections.next().unwrap_or_default();
        let field = |name: &str| {
            header.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
        };
        let roles: Vec<_> = sections.filter_map(parse_role).collect();
        let by_id = roles.iter().enumerate().map(|(index, role)| (role.id.0, index)).collect();
        Self { source: field("# Source:"), date: field("# Date:"), roles, by_id }
    }

    /// The day on which Azure published the embedded role list, as `YYYY-MM-DD`.
    pub fn date(&self) -> &'static str {
        self.date
    }

    /// The source of the embedded role list for display: repository, file and commit.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// The role with this id.
    pub fn role(&self, id: RoleDefinitionId) -> Option<&BuiltInRole> {
        self.by_id.get(&id.0).and_then(|index| self.roles.get(*index))
    }

    /// Finds a role by its display name, ignoring case.
    pub fn role_with_name(&self, name: &str) -> Option<&BuiltInRole> {
        self.roles.iter().find(|role| role.name.eq_ignore_ascii_case(name))
    }

    /// Every role, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &BuiltInRole> {
        self.roles.iter()
    }
}

fn parse_role(section: &'static str) -> Option<BuiltInRole> {
    let (title, permissions) = section.split_once('\n').unwrap_or((section, ""));
    let (id, name) = title.split_once(' ')?;
    let id = RoleDefinitionId(id.parse().ok()?);
    Some(BuiltInRole { id, name, permissions, definition: OnceLock::new() })
}

fn parse_permissions(lines: &str) -> Vec<PermissionBlock> {
    let mut blocks = vec![PermissionBlock::default()];
    let mut previous = (' ', String::new());
    for line in lines.lines() {
        if line == "-" {
            blocks.push(PermissionBlock::default());
            previous = (' ', String::new());
            continue;
        }
        let Some(block) = blocks.last_mut() else { break };
        let mut characters = line.chars();
        let kind = characters.next().unwrap_or(' ');
        let list = match kind {
            'a' => &mut block.actions,
            'n' => &mut block.not_actions,
            'd' => &mut block.data_actions,
            'x' => &mut block.not_data_actions,
            'c' => {
                block.condition = parse_condition(characters.as_str());
                continue;
            }
            _ => continue,
        };
        let shared = characters.next().and_then(|digit| digit.to_digit(10)).unwrap_or(0);
        let base = if previous.0 == kind { previous.1.as_str() } else { "" };
        let pattern = join_segments(base, shared, characters.as_str());
        list.push(ActionPattern::compile(&pattern));
        previous = (kind, pattern);
    }
    blocks
}

/// The first `shared` segments of `previous`, then `rest`.
fn join_segments(previous: &str, shared: u32, rest: &str) -> String {
    let mut pattern = String::new();
    for segment in previous.split('/').take(usize::try_from(shared).unwrap_or(usize::MAX)) {
        pattern.push_str(segment);
        pattern.push('/');
    }
    pattern.push_str(rest);
    pattern
}

fn parse_condition(text: &str) -> Option<Condition> {
    let (version, expression) = text.split_once(' ')?;
    Some(Condition::of_built_in_role(version, expression))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lanyard_vocabulary::Component;

    use super::*;

    #[test]
    fn embedded_file_contains_all_roles_with_source_and_date() {
        let roles = BuiltInRoles::embedded();
        assert_eq!(roles.iter().count(), 928);
        assert_eq!(roles.by_id.len(), roles.roles.len());
        let names: HashSet<_> = roles.iter().map(|role| role.name).collect();
        assert_eq!(names.len(), roles.roles.len());
        assert!(roles.date().parse::<jiff::civil::Date>().is_ok());
        assert!(roles.source().contains("(MIT)"), "{}", roles.source());
    }

    #[test]
    fn every_line_of_the_embedded_file_is_understood() {
        let file = include_str!("built_in_roles.txt");
        let lines = file.lines().filter(|line| !line.starts_with("# "));
        let mut counts = [0_usize; 4];
        for line in lines {
            let index = match line.as_bytes() {
                [b'=', ..] => 0,
                [b'a' | b'n' | b'd' | b'x', b'0'..=b'9', _, ..] => 1,
                [b'c', _, b'.', _, b' ', ..] => 2,
                b"-" => 3,
                _ => panic!("{line}"),
            };
            counts[index] += 1;
        }
        let blocks =
            || BuiltInRoles::embedded().iter().flat_map(|role| &role.definition().permissions);
        let patterns = blocks().map(|block| {
            [&block.actions, &block.not_actions, &block.data_actions, &block.not_data_actions]
                .map(Vec::len)
                .iter()
                .sum::<usize>()
        });
        assert_eq!(counts[0], 928);
        assert_eq!(counts[1], patterns.sum::<usize>());
        assert_eq!(counts[2], blocks().filter(|block| block.condition.is_some()).count());
        assert_eq!(counts[0] + counts[3], blocks().count());
    }

    #[test]
    fn shared_segments_of_successive_patterns_are_restored() {
        let blocks = parse_permissions(
            "a0A.B/c/read\na2write\nn0A.B/c/d/delete\na0*\n-\nd0A.B/*\nx0A.B/c/read\n",
        );
        let texts = |list: &[ActionPattern]| {
            list.iter().map(|pattern| pattern.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts(&blocks[0].actions), ["A.B/c/read", "A.B/c/write", "*"]);
        assert_eq!(texts(&blocks[0].not_actions), ["A.B/c/d/delete"]);
        assert_eq!(texts(&blocks[1].data_actions), ["A.B/*"]);
        assert_eq!(texts(&blocks[1].not_data_actions), ["A.B/c/read"]);
    }

    #[test]
    fn the_role_of_every_component_is_a_built_in_role() {
        for component in Component::ALL {
            let role = component.definition().role;
            assert!(BuiltInRoles::embedded().role(role).is_some(), "{component}");
        }
    }

    #[test]
    fn roles_are_found_by_name_ignoring_case() {
        let roles = BuiltInRoles::embedded();
        let reader = roles.role_with_name("reader").unwrap();
        assert_eq!(reader.id.0, uuid::uuid!("acdd72a7-3385-48ef-bd42-f606fba81ae7"));
        assert!(roles.role_with_name("Azure Red Hat OpenShift NodePool Management Role").is_none());
    }
}
