#ifndef LEEWAY_ENVS_TASKS_LAKE4X4_H_
#define LEEWAY_ENVS_TASKS_LAKE4X4_H_

#include <memory>

#include "envs/environment.h"

namespace leeway {

// Cross a frozen lake of 4 x 4 cells without falling into a hole.
//
//   cells        a b c d      first observation: the map, cell by cell, a hole shown as '#', then ':' and the cell of
//   the player,
//                e f g h        for example "abc#efgh#jklmnop:a"
//                i j k l      moves: U, D, L, R, one token each; after each move the player's cell is said, for example
//                "b" m n o p      start a, goal p; a move into the border stays where it is
//
// Each other cell is a hole with probability 0.2; maps whose goal can not be reached in ten moves are drawn again.
// Goal: terminated, reward 1. Hole: terminated, reward 0. Ten moves without either: truncated, reward 0. Moves are
// certain. At most 38 ids an episode. 3,828 maps, an eighth of them held out. A uniformly random policy earns
// about 0.02.
std::unique_ptr<Task> NewLake4x4Task();

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASKS_LAKE4X4_H_
