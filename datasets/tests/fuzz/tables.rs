//! Tables: pairs of papers, a corpus, expressions.

use serde_json::json;

use crate::attack::{attack_file, folder};
use crate::raw::{self, Files};

#[test]
fn pairs() {
    let root = folder();
    let line = |i: usize| {
        format!(
            "{}.0\tA{i}\tB{i}\tb'It\\'s \\xc3\\xbc \\\\ {i}'\tb\"other\\n text {i}\"\n",
            i % 2
        )
    };
    let content: String = (0..6).map(line).collect();
    let names = ["train", "eval", "test"].map(|name| format!("new_aan_pairs.{name}.tsv"));
    let files: Files = names
        .iter()
        .map(|name| (name.clone(), content.clone().into_bytes()))
        .collect();
    raw::folder(root.path(), &files);
    let file = root.path().join(&names[1]);
    let decode = [("decode", json!(true))];
    attack_file("retrieval", &decode, root.path(), &file, content.as_bytes());
}

#[test]
fn corpus() {
    let papers: String = (0..40)
        .map(|i| format!("P{i}\tthe text of paper {i}\n"))
        .collect();
    let edges: String = (0..200)
        .map(|i| format!("P{}\tP{}\t1\t0\n", i % 40, (i * 7 + i / 40 + 1) % 40))
        .collect();
    for (attacked, content) in [("papers.tsv", &papers), ("edges.tsv", &edges)] {
        let root = folder();
        let files: Files = vec![
            ("papers.tsv".into(), papers.clone().into_bytes()),
            ("edges.tsv".into(), edges.clone().into_bytes()),
        ];
        raw::folder(root.path(), &files);
        let file = root.path().join(attacked);
        attack_file("retrieval", &[], root.path(), &file, content.as_bytes());
    }
}

#[test]
fn expressions() {
    let root = folder();
    let content =
        "Source\tTarget\r\n( ( ( [MAX 2 ) 3 ) ] )\t3\r\n[SM 9 [MIN 4 5 ] X\t3\r\n7\t7\r\n";
    let names = ["train", "val", "test"].map(|name| format!("basic_{name}.tsv"));
    let files: Files = names
        .iter()
        .map(|name| (name.clone(), content.as_bytes().to_vec()))
        .collect();
    raw::folder(root.path(), &files);
    let file = root.path().join(&names[1]);
    attack_file("listops", &[], root.path(), &file, content.as_bytes());
}
