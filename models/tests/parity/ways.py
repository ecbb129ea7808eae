"""A causal model from the first position and from the last, the outputs summed: `direction` = `sum` has the same weights on the way back, `two` others,
below `back.`."""


def directed(model):
    def run(params, x, heads, options):
        ahead = model(params, x, heads, options)
        if options.get("direction") not in ("sum", "two"):
            return ahead
        back = {path.removeprefix("back."): value for path, value in params.items() if path.startswith("back.")}
        return ahead + model(back or params, x.flip(0), heads, options).flip(0)

    return run


def both_ways(params, back):
    """Parameters of `two`."""
    return params | {f"back.{path}": value for path, value in back.items()}
