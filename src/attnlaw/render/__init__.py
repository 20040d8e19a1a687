"""Every way to show a result: charts, HTML pages, the terminal."""
