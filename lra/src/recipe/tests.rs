use std::sync::LazyLock;

use models::options::{Activation, ChannelKind, NormKind, NormPlace, Pooling, Positions};

use super::*;
use crate::schedule::Schedule;
use crate::spec::{Resolved, RunRequest, Spec};

#[test]
fn a_file_is_known_by_what_it_holds_and_is_never_comparable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nystromformer.toml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Recipe::load(path.to_str().unwrap()).unwrap()
    };
    let text = "about = ''\nsource = ''\npublished = true\n[tasks.toy]\n";
    let (recipe, edited) = (
        load(text),
        load(&format!("{text}train = {{ steps = 2 }}\n")),
    );
    let digest = recipe.name.strip_prefix("file:nystromformer@").unwrap();
    assert!(digest.len() == 8 && digest.chars().all(|c| c.is_ascii_hexdigit()));
    assert_ne!(recipe.name, edited.name);
    assert_eq!(recipe.name, load(text).name);
    assert!(!recipe.body.published);
}

#[test]
fn every_built_in_recipe_parses_and_names_its_full_one() {
    for (name, _) in RECIPES {
        let recipe = Recipe::load(name).unwrap();
        assert!(!recipe.body.tasks.is_empty());
        if let Some(full) = &recipe.body.full {
            assert!(Recipe::load(full).unwrap().body.published);
        }
    }
}

#[test]
fn what_is_called_published_follows_a_published_source_and_nothing_else_does() {
    let sources = results::published::sources().iter();
    let mut following: Vec<&str> = sources.flat_map(|source| source.recipes.clone()).collect();
    let names = RECIPES.iter().map(|(name, _)| *name);
    let mut published: Vec<&str> = names
        .filter(|name| Recipe::load(name).unwrap().body.published)
        .collect();
    following.sort_unstable();
    following.dedup();
    published.sort_unstable();
    assert_eq!(following, published);
}

fn resolved(recipe: &str, task: &str, model: &str) -> Resolved {
    let request = RunRequest {
        task,
        model,
        recipe,
        source: Recipe::load(recipe).unwrap().source(task).unwrap(),
        protocol: Protocol::Clean,
        seed: 0,
        assignments: &[],
    };
    request.resolve().unwrap()
}

#[test]
fn a_task_or_a_source_without_settings_is_told_the_recipes_that_have_it() {
    let refused = |task: &str, source| {
        let request = RunRequest {
            task,
            model: "bag",
            recipe: DEFAULT,
            source,
            protocol: Protocol::Clean,
            seed: 0,
            assignments: &[],
        };
        request.resolve().err().unwrap().to_string()
    };
    let told = refused("pathx", None);
    for name in ["listops", "--recipe", "smoke", "s4", "tay2021"] {
        assert!(told.contains(name), "{told}");
    }
    assert!(!told.contains("nystromformer"), "{told}");
    let told = refused("toy", None);
    assert!(told.ends_with("(--recipe): smoke"), "{told}");
    let told = refused("retrieval", None);
    assert!(told.contains("--task retrieval:synthetic"), "{told}");
    assert!(told.contains("s4") && !told.contains("mini,"), "{told}");
}

#[test]
fn records_tell_which_recipes_are_no_longer_here() {
    let told = absent(["laptop", "mini", "file:own@1a2b3c4d", "laptop", "else"].into_iter());
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("recipe else"), "{told:?}");
    assert!(
        told[1].contains("laptop") && told[1].contains("mini"),
        "{told:?}"
    );
}

/// Returns every built-in recipe with every task that it has settings for and every model.
fn cells() -> &'static [Resolved] {
    static CELLS: LazyLock<Vec<Resolved>> = LazyLock::new(|| {
        let mut cells = Vec::new();
        for (name, _) in RECIPES {
            for task in Recipe::load(name).unwrap().body.tasks.keys() {
                let of_task = models::registry()
                    .iter()
                    .map(|model| resolved(name, task, model.name));
                cells.extend(of_task);
            }
        }
        cells
    });
    &CELLS
}

#[test]
fn every_recipe_builds_every_model_and_names_what_there_is() {
    assert!(cells().len() > 300);
    let model = |name: &String| models::registry().iter().any(|model| model.name == name);
    let task = |name: &String| datasets::TASKS.iter().any(|task| task.info().name == name);
    for (name, _) in RECIPES {
        let body = Recipe::load(name).unwrap().body;
        assert!(
            body.tasks.keys().all(task)
                && body
                    .rates
                    .iter()
                    .all(|it| task(&it.task) && model(&it.model))
                && body.models.keys().all(model)
                && body.made_for.iter().all(model),
            "{name}"
        );
        assert!(
            !body.published || !body.departures.is_empty(),
            "{name} hides something"
        );
        for departure in body.departures {
            assert!(departure.tasks.iter().all(task), "{}", departure.what);
            assert!(departure.models.iter().all(model), "{}", departure.what);
        }
    }
}

#[test]
fn mini_gives_every_model_the_same_size_and_the_same_training() {
    for task in Recipe::load("mini").unwrap().body.tasks.keys() {
        for model in models::registry() {
            let cell = resolved("mini", task, model.name);
            let (train, name) = (&cell.spec.train, model.name);
            let (_, parameters) = cell.meta().unwrap();
            let count = parameters.elements();
            let by_position = ["synthesizer", "mlp_mixer", "gmlp", "long_conv", "linformer"];
            assert!(
                (80_000..=120_000).contains(&count)
                    || by_position.contains(&name) && !cell.departures().is_empty(),
                "{name} on {task}: {count}"
            );
            assert_eq!(cell.family, Some(model.family), "{name}");
            let shared = (train.weight_decay, train.clip, train.schedule);
            assert_eq!(shared, (0.01, 1.0, Schedule::Cosine), "{name}");
            let (tenth, dropout) = (train.steps / 10, cell.spec.block.dropout);
            assert_eq!((train.warmup, train.eval_every), (tenth, tenth), "{name}");
            assert_eq!((dropout, cell.spec.embed.dropout), (0.0, 0.0), "{name}");
            for group in &train.groups {
                assert_eq!(group.weight_decay, Some(0.0), "{name}");
            }
        }
    }
}

#[test]
fn families_give_models_their_block_and_can_be_chosen() {
    let request = |recipe, model, assignments: &[&str]| {
        let assignments: Vec<String> = assignments.iter().map(|&it| it.to_owned()).collect();
        let request = RunRequest {
            task: "listops",
            model,
            recipe,
            source: None,
            protocol: Protocol::Clean,
            seed: 0,
            assignments: &assignments,
        };
        request.resolve()
    };
    let own = request("mini", "s4d", &[]).unwrap();
    let block = |cell: &Resolved| (cell.spec.block.norm, cell.spec.block.ffn);
    assert_eq!(block(&own), (NormKind::BatchMasked, ChannelKind::None));
    assert_eq!(own.spec.embed.positions, Positions::None);
    let other = request("mini", "s4d", &["block.family=xformer"]).unwrap();
    assert_eq!(block(&other), (NormKind::Layer, ChannelKind::Dense));
    assert_eq!(other.spec.embed.positions, Positions::Learned);
    assert_eq!(other.family, Some(Family::Xformer));
    assert_eq!(other.overrides, ["block.family=xformer"]);
    // A model's defining settings override the block of its own family, and an explicit width
    // overrides the solved one.
    let luna = request("mini", "luna", &["block.dim=48"]).unwrap();
    assert_eq!(luna.spec.block.norm_place, NormPlace::Post);
    assert_eq!(luna.spec.block.dim, 48);
    for (recipe, setting, words) in [
        ("mini", "block.family=filters", "xformer, filter"),
        ("smoke", "block.family=filter", "mini"),
    ] {
        let error = request(recipe, "s4d", &[setting]).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_recipe_of_ones_own_may_have_families_sizes_and_rates() {
    let folder = tempfile::tempdir().unwrap();
    let load = |text: &str| {
        let path = folder.path().join("own.toml");
        std::fs::write(&path, format!("about = ''\nsource = ''\n{text}")).unwrap();
        let path = path.to_str().unwrap().to_owned();
        Recipe::load(&path).map(|_| path)
    };
    let path = load(
        "parameters = 9000\nrates = [{ task = 'toy', model = 'linear', family = 'xformer', learning_rate = 0.25 }]\n\
         [families.xformer]\nblock = { layers = 1 }\n[tasks.toy.families.filter]\nblock = { layers = 3 }\n",
    );
    let path = path.unwrap();
    let [linear, s4d] = ["linear", "s4d"].map(|model| resolved(&path, "toy", model).spec);
    assert_eq!((linear.block.layers, s4d.block.layers), (1, 3));
    assert_eq!(linear.train.learning_rate, 0.25);
    assert_ne!(s4d.train.learning_rate, 0.25);
    for (text, words) in [
        ("[families.filters]\n[tasks.toy]\n", "filters"),
        (
            "probe = 3\n[tasks.toy]\n",
            ", line 3: integer `3` instead of a table",
        ),
        (
            "[tasks.toy]\n[[departures]]\nwhat = ''\nprotocol = 'dirty'\n",
            ", line 6: `dirty` is none of `clean` and `tay2021`",
        ),
        (
            "[tasks.toy]\n[prob]\nx = 1\n",
            "`prob` is unknown here; known are `about`",
        ),
        ("[tasks.toy.families.gates]\n", "gates"),
        ("[tasks.toy]\nsource = 'nowhere'\n", "nowhere"),
        (
            "[probe]\nlearning_rates = []\nshare = 0.5\n[tasks.toy]\n",
            "probe",
        ),
        (
            "[probe]\nlearning_rates = [0.1]\nshare = 0.0\n[tasks.toy]\n",
            "probe",
        ),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // No width gives a model so few parameters.
    let path = load("parameters = 3\n[tasks.toy]\n").unwrap();
    let cell = resolved(&path, "toy", "linear");
    assert_eq!(cell.spec.block.dim, 64);
    assert!(cell.departures()[0].contains("at no width"));
}

#[test]
fn tay2021_runs_what_the_code_of_2021_computed() {
    for cell in cells().iter().filter(|cell| cell.recipe.name == "tay2021") {
        let (spec, model) = (&cell.spec, cell.model);
        let [task, name] = [&spec.cell.task, &spec.cell.model].map(String::as_str);
        if model.variants.iter().any(|it| it.name == "tay2021") {
            assert_eq!(spec.model["variant"], "tay2021", "{task} {name}");
        }
        let features = (task, name) == ("listops", "performer");
        if name == "performer" {
            let kernel = if features { "favor" } else { "auto" };
            assert_eq!(spec.model["kernel"], kernel, "{task}");
            assert_eq!(
                spec.model["features"],
                if features { 2 } else { 0 },
                "{task}"
            );
        }
        if name == "sinkhorn" && task != "retrieval" {
            assert_eq!(spec.head.hidden, 0, "{task}");
        }
        let pixels = ["image", "pathfinder"].contains(&task);
        if pixels && ["local", "sinkhorn", "bigbird"].contains(&name) {
            assert_eq!(spec.model["block"], 64, "{task} {name}");
        }
        if name == "sparse" {
            assert_eq!(spec.model["first"], task == "retrieval", "{task}");
        }
    }
    let image = resolved("tay2021", "image", "transformer");
    // The last incomplete batch, the CLS token, the order of batches, the precision of products.
    assert!(image.spec.embed.zero_is_padding && image.departures().len() == 4);
    let of_black_pixels = |task: &str, model: &str| {
        let departures = resolved("tay2021", task, model).departures();
        departures.iter().any(|what| what.contains("black"))
    };
    for task in ["image", "pathfinder", "pathx"] {
        for model in ["transformer", "local", "sinkhorn", "bigbird"] {
            assert!(of_black_pixels(task, model), "{task} {model}");
        }
        // These ignore the mask in the 2021 code.
        for model in ["linear", "performer", "linformer", "reformer"] {
            assert!(!of_black_pixels(task, model), "{task} {model}");
        }
    }
    assert!(
        !resolved("tay2021", "pathfinder", "local")
            .departures()
            .is_empty()
    );
    assert!(resolved("mini", "listops", "local").departures().is_empty());
}

/// The loaders of these sources descend from S4's: `]` is a token, parentheses are not, and an
/// end of sequence follows.
#[test]
fn departures_are_those_of_the_loaders() {
    let departures = |recipe: &str, task: &str, protocol| {
        let recipe = Recipe::load(recipe).unwrap();
        let model = recipe.body.made_for[0].clone();
        recipe.departures(task, &model, protocol)
    };
    for recipe in [
        "s4",
        "s5",
        "rtf",
        "sgconv",
        "tnn",
        "hgrn2",
        "cosformer",
        "chordmixer",
        "long-conv",
    ] {
        let says = |task: &str, words: &str| {
            let mut of_task = departures(recipe, task, Protocol::Clean).into_iter();
            of_task.any(|what| what.contains(words))
        };
        assert!(says("listops", "an end of sequence follows"), "{recipe}");
        let least = if recipe == "chordmixer" { "10" } else { "15" };
        let rare = format!("characters that occur at least {least} times, at most 4,095");
        assert!(says("text", &rare) && says("text", "22,498"), "{recipe}");
        assert!(
            says("retrieval", "there characters, at most 3,999"),
            "{recipe}"
        );
        assert!(!says("retrieval", "occur at least"), "{recipe}");
        assert!(says("retrieval", "for two sequences"), "{recipe}");
        let together = says("retrieval", "of the first sequences and of the second");
        let by_batch = resolved(
            recipe,
            "retrieval",
            &Recipe::load(recipe).unwrap().body.made_for[0],
        );
        let by_batch = matches!(
            by_batch.spec.block.norm,
            NormKind::Batch | NormKind::BatchMasked
        );
        assert_eq!(together, by_batch, "{recipe}");
        let grey = says("image", "26 % of random colours");
        assert_eq!(grey, recipe != "hgrn2", "{recipe}");
        assert!(says("pathfinder", "drawn with seed 42"), "{recipe}");
        let published = departures(recipe, "text", Protocol::Tay2021);
        assert!(
            !published.iter().any(|what| what.contains("22,498")),
            "{recipe}"
        );
    }
    for (name, _) in RECIPES {
        for departure in Recipe::load(name).unwrap().body.departures {
            let what = departure.what;
            assert!(!what.contains("parenthes"), "{name}: {what}");
        }
    }
}

#[test]
fn liquid_s4_has_its_authors_settings() {
    let text = resolved("liquid-s4", "text", "s4d");
    let Spec {
        block,
        model,
        train,
        ..
    } = &text.spec;
    assert!(block.dropout_tied && block.norm == NormKind::Batch);
    assert_eq!(model["n_ssm"], 0);
    assert_eq!(
        [train.steps, train.schedule_steps, train.warmup],
        [156_250, 50_000, 1000]
    );
    let mut groups = train.groups.iter();
    let dt = groups
        .find(|group| group.has("encoder.0.mixer.log_dt"))
        .unwrap();
    assert_eq!(
        (dt.learning_rate, dt.weight_decay),
        (Some(0.003), Some(0.0))
    );
    for (done, rate) in [
        (500, 0.0015),
        (1000, 0.003),
        (50_000, 0.0),
        (99_000, 0.003),
        (148_000, 0.0),
    ] {
        assert!(
            (train.rate(done) - rate).abs() < 1e-12,
            "{done}: {}",
            train.rate(done)
        );
    }
}

/// Departures that no setting of the recipe removes.
#[test]
fn liquid_s4_lists_what_its_authors_do_otherwise() {
    let departures = Recipe::load("liquid-s4")
        .unwrap()
        .departures("text", "s4d", Protocol::Clean);
    for words in [
        "the products of inputs that Liquid-S4 adds",
        "a learned matrix of rank one",
        "at most 4,095",
        "22,498 of 25,000 reviews",
        "there the test split is validated on",
        "there 7, of which one is left over",
    ] {
        let says = departures.iter().any(|what| what.contains(words));
        assert!(says, "{words}: {departures:?}");
    }
}

/// Tables 8 and 9 of Orvieto et al., 2023 (arXiv:2303.06349).
#[test]
fn lru_has_its_authors_settings_on_path_x() {
    let train = resolved("lru", "pathx", "lru").spec.train;
    assert_eq!(
        [train.steps, train.warmup, train.batch],
        [250_000, 25_000, 32]
    );
}

/// 128 landmarks among 64 tokens took nearly all of the time.
#[test]
fn skyformer_has_few_landmarks_where_runs_are_short() {
    for task in ["toy", "listops", "pathfinder"] {
        let model = resolved("smoke", task, "skyformer").spec.model;
        assert_eq!(model["landmarks"], 16, "{task}");
    }
}

#[test]
fn nystromformer_has_its_authors_settings() {
    for cell in cells()
        .iter()
        .filter(|cell| cell.recipe.name == "nystromformer")
    {
        let (train, head) = (&cell.spec.train, &cell.spec.head);
        assert_eq!(train.weight_decay, 0.0);
        assert_eq!(
            [train.beta1, train.beta2, train.epsilon],
            [0.9, 0.999, 1e-6]
        );
        assert_eq!(head.pooling, Pooling::PaddedMean);
        if cell.model.name == "nystromformer" {
            let wanted = serde_json::json!({
                "variant": "xiong2021", "landmarks": 64, "iterations": 6, "conv": 35,
            });
            assert_eq!(cell.spec.model, wanted);
        }
        // A model's defining settings override a recipe.
        if cell.model.settings().unwrap()["block"]["activation"].is_null() {
            assert_eq!(cell.spec.block.activation, Activation::GeluErf);
        }
    }
}

#[test]
fn every_name_in_a_recipe_is_one_of_the_registry() {
    let refused = |text: &str| {
        let head = "about = ''\nsource = ''\n[tasks.listops]\n[tasks.text.models.linear]\n";
        let read = Recipe::parse("mine".to_owned(), &format!("{head}{text}\n"));
        read.err().map(|error| error.to_string())
    };
    assert_eq!(refused(""), None);
    for (text, hint) in [
        ("[models.Linear]", "'Linear' is spelt 'linear'"),
        (
            "[models.linear]\ntrain.clip = [1.0, -nan]",
            "models.linear.train.clip = NaN is not a finite number",
        ),
        (
            "[models.linear.train]\nrate = inf",
            "models.linear.train.rate = inf is not a finite number",
        ),
        (
            "[models.linear]\nday = 2026-11-30",
            "models.linear.day = 2026-11-30: a date is no setting",
        ),
        ("[models.linaer]", "did you mean 'linear'?"),
        ("[tasks.list_ops]", "did you mean 'listops'?"),
        ("[tasks.ListOps]", "is spelt 'listops'"),
        ("[tasks.imdb]", "did you mean 'text'?"),
        ("[tasks.image.models.linaer]", "did you mean 'linear'?"),
        (
            "[[departures]]\nwhat = 'x'\ntasks = ['imdb']",
            "did you mean 'text'?",
        ),
        (
            "[[departures]]\nwhat = 'x'\nmodels = ['linaer']",
            "did you mean 'linear'?",
        ),
    ] {
        let message = refused(text).unwrap();
        assert!(
            message.contains(hint) && message.starts_with("recipe mine"),
            "{text}: {message}"
        );
    }
}

/// Numbers that are none, as they are spelt in a file.
#[test]
fn what_is_no_number_is_told_in_plain_words() {
    let head = "about = \"x\"\nsource = \"own\"\npublished = false\n[tasks.toy]\n";
    for (value, told) in [
        ("99999999999999999999", "a whole number is too large"),
        (
            "0x",
            "a whole number is too large (at most 9223372036854775807) or has no digits",
        ),
        ("05", "a number begins with 0"),
        ("1__0", "a number has a `_` that is not between digits"),
        ("1.e5", "a number has no digits behind its point"),
        ("1e", "a number has no digits behind its e"),
        ("1e99999", "a number is too large"),
        (
            "",
            "a value is missing, or is a word without quotation marks",
        ),
        (
            "many",
            "a value is missing, or is a word without quotation marks",
        ),
    ] {
        let text = format!("{head}train.learning_rate = {value}\n");
        let error = Recipe::parse("mine".to_owned(), &text)
            .err()
            .unwrap()
            .to_string();
        let told = format!("recipe mine, line 5: {told}");
        assert!(error.contains(&told), "{value}: {error}");
        assert!(!error.contains("expected"), "{value}: {error}");
    }
}
