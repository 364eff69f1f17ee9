//! Where a node keeps its state that was started without a configuration file: below the user's own data folder.
//!
//! The environment is asked here and nowhere else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::Config;

/// What to do when that folder cannot be used, as a part of a sentence.
pub(super) const WAYS_OUT: &str = "set XDG_DATA_HOME or HOME to a folder that can be written, \
     name one as data_dir in a configuration file, or keep everything in memory with  holdfast serve --ephemeral";

/// Gives `config` its data directory: its own if a file or a variable names one, or there is a file; else that of the user; none if the node is to be ephemeral.
///
/// # Errors
/// A sentence that says what to do, if the user has no data folder.
pub(super) fn decide(config: &mut Config, from_file: bool, ephemeral: bool) -> Result<(), String> {
    decide_in(config, from_file, ephemeral, |name| std::env::var_os(name))
}

fn decide_in(
    config: &mut Config,
    from_file: bool,
    ephemeral: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(), String> {
    if ephemeral {
        config.node.data_dir = None;
    } else if !from_file && config.node.data_dir.is_none() {
        config.node.data_dir = Some(of_user(variable)?);
    }
    Ok(())
}

/// `$XDG_DATA_HOME/holdfast`, else `~/.local/share/holdfast`: the XDG Base Directory Specification, in which a relative path counts as none.
fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data_home = folder("XDG_DATA_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/share")));
    data_home
        .map(|data_home| data_home.join("holdfast"))
        .ok_or_else(|| format!("there is no folder to keep the node's state in, for HOME is not set: {WAYS_OUT}"))
}

/// The directory in words, for a node that has it without having been told.
pub(super) fn in_words(dir: &Path) -> String {
    format!("the node keeps its data in {}; with --ephemeral it keeps nothing", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_a_variable_names_stays() {
        let mut config = Config::default_loopback();
        config.node.data_dir = Some("/of/variable".into());
        decide_in(&mut config, false, false, |_| Some("/home/u".into())).unwrap();
        assert_eq!(config.node.data_dir, Some("/of/variable".into()));
    }

    fn dir(variables: &[(&str, &str)], from_file: bool, ephemeral: bool) -> Result<Option<PathBuf>, String> {
        let mut config = Config::default_loopback();
        if from_file {
            config.node.data_dir = Some("/of/file".into());
        }
        let variable = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.into());
        decide_in(&mut config, from_file, ephemeral, variable).map(|()| config.node.data_dir)
    }

    #[test]
    fn a_node_without_a_file_keeps_its_state_with_the_user() {
        let home = ("HOME", "/home/ada");
        for (variables, expected) in [
            (&[home][..], "/home/ada/.local/share/holdfast"),
            (&[home, ("XDG_DATA_HOME", "")], "/home/ada/.local/share/holdfast"),
            (&[home, ("XDG_DATA_HOME", "relative")], "/home/ada/.local/share/holdfast"),
            (&[home, ("XDG_DATA_HOME", "/data")], "/data/holdfast"),
            (&[("XDG_DATA_HOME", "/data")], "/data/holdfast"),
        ] {
            assert_eq!(dir(variables, false, false), Ok(Some(expected.into())), "{variables:?}");
            assert_eq!(dir(variables, false, true), Ok(None));
        }
    }

    #[test]
    fn who_has_no_folder_is_told_what_to_do() {
        for variables in [&[][..], &[("HOME", "")], &[("HOME", "ada"), ("XDG_DATA_HOME", "data")]] {
            let error = dir(variables, false, false).expect_err("no folder");
            for way_out in ["XDG_DATA_HOME", "HOME", "data_dir", "--ephemeral"] {
                assert!(error.contains(way_out), "{error}");
            }
            assert_eq!(dir(variables, false, true), Ok(None));
        }
    }

    #[test]
    fn what_a_file_says_counts_unless_the_node_is_ephemeral() {
        assert_eq!(dir(&[("HOME", "/home/ada")], true, false), Ok(Some("/of/file".into())));
        assert_eq!(dir(&[], true, false), Ok(Some("/of/file".into())));
        assert_eq!(dir(&[("HOME", "/home/ada")], true, true), Ok(None));
    }
}
