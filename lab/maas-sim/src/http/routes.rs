//! Maps a path and a method to an action.

pub use super::surface::{Action, Operation, ROUTES, Route};

/// Operations that only unsigned requests may use.
const ONLY_ANONYMOUS: &[&str] = &["is_action_in_progress"];

impl Route {
    /// Whether it needs no authentication.
    pub fn is_public(&self) -> bool {
        matches!(self.path, "version/" | "describe/")
    }

    /// Operations that need no signature, if there are any.
    pub fn anonymous(&self) -> Option<Vec<Operation>> {
        let names: &[&str] = match self.path {
            "machines/" => &["accept", "create", "is_action_in_progress", "is_registered"],
            "nodes/" | "devices/" => &["is_action_in_progress", "is_registered"],
            _ => return None,
        };
        Some((self.operations)().into_iter().filter(|operation| names.contains(&operation.name)).collect())
    }

    /// Operations of a signed request.
    pub fn signed(&self) -> impl Iterator<Item = Operation> {
        (self.operations)().into_iter().filter(|operation| !ONLY_ANONYMOUS.contains(&operation.name))
    }

    /// The methods of all operations.
    pub fn methods(&self) -> Vec<&'static str> {
        let mut methods = Vec::new();
        for operation in self.signed() {
            if !methods.contains(&operation.method) {
                methods.push(operation.method);
            }
        }
        methods
    }

    /// The action of a method and an operation.
    pub fn action(&self, method: &str, op: Option<&str>) -> Option<(Operation, Action)> {
        (self.find)(&|operation| {
            operation.method == method && op.map_or(operation.restful, |op| !operation.restful && operation.name == op)
        })
    }

    /// Whether the URL is that of one object.
    pub fn is_item(&self) -> bool {
        self.path.trim_end_matches('/').ends_with('}')
    }
}

/// A path with a known resource.
#[derive(Debug)]
pub struct Match {
    pub route: &'static Route,
    /// Values of the parameters, in order.
    pub parameters: Vec<String>,
    /// An operation in the path (3.3 and later).
    pub op: Option<String>,
}

/// Finds the resource of a path below the API's root, after decoding.
pub fn find(path: &str, op_in_path: bool) -> Option<Match> {
    if let Some(found) = find_exact(path) {
        return Some(Match { route: found.0, parameters: found.1, op: None });
    }
    let (parent, last) = path.rsplit_once('/')?;
    let op = last.strip_prefix("op-").filter(|op| op_in_path && !op.is_empty())?;
    let (route, parameters) = find_exact(&format!("{parent}/"))?;
    Some(Match { route, parameters, op: Some(op.to_owned()) })
}

fn find_exact(path: &str) -> Option<(&'static Route, Vec<String>)> {
    let segments: Vec<&str> = path.split('/').collect();
    // The id of a subnet may be a CIDR and contain a slash.
    if let ["subnets", address, length, ""] = segments.as_slice()
        && address.contains(['.', ':'])
        && length.parse::<u8>().is_ok()
    {
        let route = ROUTES.iter().find(|route| route.path == "subnets/{id}/")?;
        return Some((route, vec![format!("{address}/{length}")]));
    }
    ROUTES.iter().find_map(|route| {
        let pattern: Vec<&str> = route.path.split('/').collect();
        if pattern.len() != segments.len() {
            return None;
        }
        let mut parameters = Vec::new();
        for (wanted, have) in pattern.iter().zip(&segments) {
            if wanted.starts_with('{') {
                if have.is_empty() || (have.starts_with("op-") && !route.path.ends_with('/')) {
                    return None;
                }
                parameters.push((*have).to_owned());
            } else if wanted != have {
                return None;
            }
        }
        Some((route, parameters))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_needs_its_slash_and_an_operation_in_the_path_must_not_have_one() {
        assert!(find("zones/", true).is_some());
        assert!(find("zones", true).is_none());
        let op = find("machines/abc/op-power_on", true).unwrap();
        assert_eq!((op.op.as_deref(), op.parameters), (Some("power_on"), vec!["abc".to_owned()]));
        assert!(find("machines/abc/op-power_on/", true).is_none());
        assert!(find("machines/abc/op-power_on", false).is_none());
    }

    #[test]
    fn the_addresses_of_scripts_and_partitions_end_without_a_slash() {
        assert_eq!(find("scripts/smartctl-validate", true).unwrap().parameters, ["smartctl-validate"]);
        assert!(find("scripts/smartctl-validate/", true).is_none());
        assert_eq!(find("nodes/abc/blockdevices/1/partition/2", true).unwrap().parameters, ["abc", "1", "2"]);
    }

    #[test]
    fn a_subnet_is_found_by_its_network() {
        assert_eq!(find("subnets/10.42.0.0/24/", true).unwrap().parameters, ["10.42.0.0/24"]);
    }
}
