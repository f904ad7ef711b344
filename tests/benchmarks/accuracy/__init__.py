"""What the cost model's forecasts are worth, judged on tables of published measurements."""
